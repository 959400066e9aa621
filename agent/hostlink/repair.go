// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/loop"
)

// repairPeriod is the time between two repairs of all host links, for changes without an event.
const repairPeriod = time.Minute

// settlePeriod is how often Run looks again at an attachment with tentative addresses, or for which a
// call was under way. The duplicate address detection of the kernel takes one to two seconds.
const settlePeriod = 500 * time.Millisecond

// retryFirst and retryMost bound the pauses after a failure.
const (
	retryFirst = time.Second
	retryMost  = repairPeriod
)

// Wake makes Run repair the routing of an attachment. Call it after a fence.
func (l *Links) Wake(a agentapi.Attachment) { l.due.Add(a) }

// WakeAll makes Run repair all attachments. Call it after a change of service CIDRs or of the Node.
func (l *Links) WakeAll() { l.wake.Up() }

// Run repairs the routing of living pods, and removes the host links of those that have ended: at once,
// after a change of the node's addresses, after WakeAll, and each repairPeriod. After Wake it repairs
// one attachment. It returns when ctx ends.
func (l *Links) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { l.followAddresses(ctx) })
	tries := loop.Backoff{First: retryFirst, Most: retryMost}
	all := l.Clock.Now() // when all are repaired
	for {
		var err error
		if now := l.Clock.Now(); now.Before(all) {
			err = l.repairDue()
		} else if all, err = now.Add(repairPeriod), l.Repair(); err == nil {
			tries.Reset()
		}
		now := l.Clock.Now()
		if err != nil {
			if again := now.Add(tries.Next()); again.Before(all) {
				all = again
			}
			if tries.IsNew(err) {
				l.Log.Error(err, "the routing of some pods is not complete")
			}
		}
		wait := all.Sub(now)
		if !l.due.Empty() {
			wait = min(wait, settlePeriod)
		}
		timer := l.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-l.wake:
			all = now
		case <-l.due.Wake():
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
	l.due.Take()
	busy, err := l.repairAll(l.Entries())
	if err == nil && !busy {
		l.renewed.Store(true)
	}
	return err
}

// repairDue does the same for the attachments whose repair is due.
func (l *Links) repairDue() error {
	var entries []*attachment.Entry
	for a := range l.due.Take() {
		if e, ok := l.Entry(a.ContainerID, a.Interface); ok {
			entries = append(entries, &e)
		}
	}
	_, err := l.repairAll(entries)
	return err
}

// repairAll repairs entries. busy: a call was under way for one of them, whose repair is due.
func (l *Links) repairAll(entries []*attachment.Entry) (busy bool, err error) {
	node, err := nodeAddresses(l.node)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, e := range entries {
		if e.Routing == nil {
			continue
		}
		skipped, err := l.repair(e, node)
		busy, errs = busy || skipped, append(errs, err)
	}
	return busy, errors.Join(errs...)
}

// repair completes the routing of one entry, or removes its host link. A call under way for the
// entry goes first, for example one of the plugin, and the repair is due again. Such a call may
// wait for the API server, but the node's routes to fenced addresses go now.
func (l *Links) repair(e *attachment.Entry, node []netip.Addr) (busy bool, err error) {
	unlock, ok := l.TryLock(e.Attachment())
	if !ok {
		l.due.PutBack(e.Attachment())
		return true, l.withdraw(e)
	}
	defer unlock()
	now, ok := l.Entry(e.ContainerID, e.Interface)
	if !ok {
		return false, nil
	}
	if now.Phase != attachment.Bound || now.Session != l.Session || now.Routing == nil || now.Mute {
		return false, l.Remove(&now)
	}
	if err := l.complete(&now, node); err != nil && !errors.Is(err, ErrGone) {
		return false, err
	}
	return false, nil
}

// withdraw removes the node's routes to the addresses that an entry may not use any more, so that the
// node reaches their new holders. It only removes, so it needs no lock.
func (l *Links) withdraw(e *attachment.Entry) error {
	name := NodeEnd(e.Attachment())
	link, err := l.node.LinkByName(name)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up %s: %w", name, err)
	}
	usable, err := l.usable(e)
	if err != nil {
		return err
	}
	routes, err := ownRoutes(l.node, link)
	if err != nil {
		return err
	}
	for _, r := range routes {
		if slices.ContainsFunc(usable, func(a netip.Prefix) bool { return a.Addr() == r.Dst.Addr() }) {
			continue
		}
		if err := r.remove(l.node, link); err != nil {
			return err
		}
	}
	return nil
}
