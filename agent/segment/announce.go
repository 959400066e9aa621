// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/frames"
)

// linkUpDeadline is how long an announcement waits for the pod's link. CNI plugins set it up after
// IPAM ADD has answered, and an ADD takes at most 20 s.
const linkUpDeadline = 30 * time.Second

// errLinkDown ends the wait of an announcement for the pod's link.
var errLinkDown = errors.New("link did not come up in time")

// announceAt returns the times of the announcements after the link is up. The early ones correct
// neighbours that have just got late frames of the previous holder from a queue. The last one
// reaches neighbours behind switch ports that begin to forward late.
func announceAt() []time.Duration {
	return []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second}
}

// Announce announces a new holder to the segment by gratuitous ARP (RFC 5227 section 2.3) or
// unsolicited neighbour advertisement (RFC 4861 section 7.2.6) with a report of its group. It sends four times from
// the holder's own interface, after the link is up, and stops when the address is fenced or another
// slot's, its slot is dead, or a plugin has given another MAC to the interface. It returns at once and logs later
// errors. In mode Off it does nothing. Safe for concurrent use.
func (s *Segment) Announce(a Announcement) {
	if !speaks(a.Mode) {
		return
	}
	s.set.background(func(ctx context.Context) {
		if err := s.announce(ctx, a, announceAt()); err != nil && !errors.Is(err, errClosed) {
			s.set.log.Info("announcement failed", "address", a.Addr.String(), "parent", s.name, "reason", err.Error())
		}
	})
}

// announce sends the announcements at the given times after the link is up.
func (s *Segment) announce(ctx context.Context, a Announcement, at []time.Duration) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("announce %s from %s: %w", a.Addr, a.Interface, err)
		}
	}()
	announcement, err := frames.Announce(a.MAC, a.Addr)
	if err != nil {
		return err
	}
	if a.Addr.Is6() { // a guard may have dropped those of the pod's kernel, and a guest sends none after its migration
		report, err := frames.Report(a.MAC, a.Addr)
		if err != nil {
			return err
		}
		announcement = append(announcement, report)
	}
	port, err := s.set.openPort(a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, port.Close()) }()
	up, cancel := context.WithTimeoutCause(ctx, linkUpDeadline, errLinkDown)
	defer cancel()
	if err := port.WaitUp(up); err != nil {
		return err
	}
	start := s.set.clock.Now()
	for _, after := range at {
		if err := Sleep(ctx, s.set.clock, after-s.set.clock.Since(start)); err != nil {
			return err
		}
		if silent, err := s.set.mustBeSilent(s.key(a.Addr), a.Slot); err != nil || silent {
			return err
		}
		if passed, err := s.set.hasPassed(s.key(a.Addr), a); err != nil || passed {
			return err
		}
		for _, f := range announcement {
			if err := port.Send(f); err != nil {
				return fmt.Errorf("send: %w", err)
			}
		}
	}
	return nil
}

// hasPassed reports whether the address has another slot or no slot by now, or the holder another MAC. These have their
// own announcement. The guard would take this one for a wish of a pod that has lost its turn.
func (s *Segments) hasPassed(key bpf.Key, a Announcement) (bool, error) {
	l, installed, err := s.kernel.Leases.Lease(key)
	if err != nil {
		return false, fmt.Errorf("read the holder of %s: %w", key, err)
	}
	if a.Slot != 0 && l.Slot != a.Slot {
		return installed, nil
	}
	return installed && l.Slot == a.Slot && len(l.MAC) > 0 && !bytes.Equal(l.MAC, a.MAC), nil
}

// mustBeSilent reports whether the holder must no longer send from the address: the address is
// fenced or the slot is dead. Slot 0 is not checked.
func (s *Segments) mustBeSilent(key bpf.Key, slot uint32) (bool, error) {
	fenced, err := s.kernel.Leases.Fenced(key)
	if err != nil {
		return false, fmt.Errorf("check whether %s is fenced: %w", key, err)
	}
	if fenced || slot == 0 {
		return fenced, nil
	}
	dead, err := s.kernel.Slots.Dead(slot)
	if err != nil {
		return false, fmt.Errorf("check whether slot %d is dead: %w", slot, err)
	}
	return dead, nil
}
