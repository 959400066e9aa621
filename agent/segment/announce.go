package segment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/bpf"
)

// linkUpDeadline is how long an announcement waits for the pod's link: CNI
// plugins bring it up after the address was given out, at the latest within an
// ADD of 20 s.
const linkUpDeadline = 30 * time.Second

// announceAt are the times of the announcements after the link is up. The
// first two cross queues that still hold frames of a predecessor; the last
// reaches neighbours behind ports that began to forward late.
func announceAt() []time.Duration {
	return []time.Duration{0, 50 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second}
}

// Announce tells the segment of a new holder by gratuitous ARP (RFC 5227
// section 2.3) or unsolicited neighbour advertisement (RFC 4861 section 7.2.6),
// four times, from the holder's own interface, once its link is up. It returns
// at once; what goes wrong later is logged. It stops when the address is fenced
// or its slot is dead. Safe for concurrent use.
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
	frames, err := announceFrames(a.MAC, a.Addr)
	if err != nil {
		return err
	}
	port, err := s.set.openPort(a.NetNS, a.Interface)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, port.close()) }()
	up, cancel := context.WithTimeoutCause(ctx, linkUpDeadline, errLinkDown)
	defer cancel()
	if err := port.waitUp(up); err != nil {
		return err
	}
	start := s.set.clock.Now()
	for _, after := range at {
		if err := sleep(ctx, s.set.clock, after-s.set.clock.Since(start)); err != nil {
			return err
		}
		if silent, err := s.set.mustBeSilent(s.key(a.Addr), a.Slot); err != nil || silent {
			return err
		}
		for _, f := range frames {
			if err := port.send(f); err != nil {
				return fmt.Errorf("send: %w", err)
			}
		}
	}
	return nil
}

// mustBeSilent tells whether the holder of key has lost its right to speak: the
// address is fenced or the slot is dead. Slot 0 is not checked.
func (s *Segments) mustBeSilent(key bpf.Key, slot uint32) (bool, error) {
	fenced, err := s.kernel.Fenced(key)
	if err != nil {
		return false, fmt.Errorf("see whether %s is fenced: %w", key, err)
	}
	if fenced || slot == 0 {
		return fenced, nil
	}
	dead, err := s.kernel.SlotDead(slot)
	if err != nil {
		return false, fmt.Errorf("see whether slot %d is dead: %w", slot, err)
	}
	return dead, nil
}
