// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
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

// Run repairs the routing of living pods, and removes the host links of others: at once, after a
// change of the node's addresses, after Wake, and each repairPeriod. It returns when ctx ends.
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

// Repair completes the routing of living pods, and removes the host links of others. The error names
// the pods whose routing could not be completed.
func (l *Links) Repair() error {
	l.settling.Store(false)
	node, err := l.nodeAddresses()
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	var errs []error
	for _, e := range l.Entries() {
		if !l.lives(e) {
			continue
		}
		wanted[NodeEnd(e.Attachment())] = true
		errs = append(errs, l.repair(e, node))
	}
	err = errors.Join(append(errs, l.sweep(wanted))...)
	if err == nil {
		l.renewed.Store(true)
	}
	return err
}

// lives reports whether an entry may have a host link.
func (l *Links) lives(e *journal.Entry) bool {
	return e.Phase == journal.Bound && e.Session == l.Session && e.Routing != nil && !e.Mute
}

// repair completes the routing of one entry. A call of the plugin for it goes first.
func (l *Links) repair(e *journal.Entry, node []netip.Addr) error {
	unlock, ok := l.TryLock(e.Attachment())
	if !ok {
		return nil // the call completes or removes it
	}
	defer unlock()
	now, ok := l.Entry(e.ContainerID, e.Interface)
	if !ok || !l.lives(&now) {
		return nil
	}
	if err := l.complete(&now, node); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}

// sweep removes the host links that no living pod has.
func (l *Links) sweep(wanted map[string]bool) error {
	links, err := l.node.LinkList()
	if err != nil {
		return fmt.Errorf("list the interfaces of the node: %w", err)
	}
	var errs []error
	for _, link := range links {
		name := link.Attrs().Name
		if !strings.HasPrefix(name, NodePrefix) || link.Type() != "veth" || wanted[name] || l.isWanted(name) {
			continue
		}
		errs = append(errs, l.delete(name))
	}
	return errors.Join(errs...)
}

// isWanted reports whether an entry of the journal has the host link by now.
func (l *Links) isWanted(name string) bool {
	for _, e := range l.Entries() {
		if l.lives(e) && NodeEnd(e.Attachment()) == name {
			return true
		}
	}
	return false
}
