// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/internal/backoff"
)

// repairPeriod is how often all host links are compared with their plans, in case that nothing has
// told of a change.
const repairPeriod = time.Minute

// settlePeriod is how often Run looks whether addresses are tentative no more. The detection of the
// kernel takes one to two seconds.
const settlePeriod = 500 * time.Millisecond

// retryFirst and retryMost bound the pauses after a failure.
const (
	retryFirst = time.Second
	retryMost  = repairPeriod
)

// Wake makes Run repair all host links. Call it after a change of the service CIDRs, of the Node
// object, or of a fence.
func (l *Links) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run repairs the routing of living pods, and removes the host links of those that have ended: at once,
// after a change of the node's addresses, after Wake, and each repairPeriod. It returns when ctx ends.
func (l *Links) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { l.watch(ctx) })
	tries := backoff.Backoff{First: retryFirst, Most: retryMost}
	for {
		wait := repairPeriod
		if err := l.Repair(); err != nil {
			if wait = tries.Next(); tries.IsNew(err) {
				l.Log.Error(err, "the routing of some pods is not complete")
			}
		} else {
			tries.Reset()
		}
		if l.settling.Load() {
			wait = min(wait, settlePeriod)
		}
		timer := l.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-l.wake:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// Repair completes the routing of living pods, and removes the host links of those that have ended. The
// error names the pods for which it failed. A host link without an entry stays: its pod lives, and the
// journal was erased or damaged. An entry ends after its link, and the end of a pod's namespace removes
// the link.
func (l *Links) Repair() error {
	l.settling.Store(false)
	node, err := l.nodeAddresses()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range l.Entries() {
		if e.Routing != nil {
			errs = append(errs, l.repair(e, node))
		}
	}
	err = errors.Join(errs...)
	if err == nil {
		l.renewed.Store(true)
	}
	return err
}

// lives reports whether an entry may have a host link.
func (l *Links) lives(e *journal.Entry) bool {
	return e.Phase == journal.Bound && e.Session == l.Session && e.Routing != nil && !e.Mute
}

// repair completes the routing of one entry, or removes its host link. A call of the plugin for it goes
// first.
func (l *Links) repair(e *journal.Entry, node []netip.Addr) error {
	unlock, ok := l.TryLock(e.Attachment())
	if !ok {
		return nil // the call completes or removes it
	}
	defer unlock()
	now, ok := l.Entry(e.ContainerID, e.Interface)
	if !ok {
		return nil
	}
	if !l.lives(&now) {
		return l.Remove(&now)
	}
	if err := l.complete(&now, node); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}
