// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/fenceline/fenceline/bpf"
)

// watchEvents is how many events a watch keeps for a busy listener. The kernel's state keeps the
// last event that does not fit.
const watchEvents = 64

// watches passes kernel events to the watches of their address, and keeps an entry in the kernel
// for each watched address. Safe for concurrent use.
type watches struct {
	kernel Kernel

	mu    sync.Mutex
	byKey map[bpf.Key]*watched
}

// watched is one address with its watches.
type watched struct {
	watches map[*watch]struct{}
	// ours: the kernel's entry is a watch, perhaps of an earlier agent. The last watch removes it.
	ours bool
}

// watch receives the events of one address until end.
type watch struct {
	set    *watches
	key    bpf.Key
	events chan bpf.Event
	// held is the lease that was installed for the address when the watch
	// began; Slot 0: it was not held here.
	held bpf.Lease
	// leave ends the membership in the address's group, once. It may wait for the RTNL lock.
	leave func()
}

func newWatches(k Kernel) *watches { return &watches{kernel: k, byKey: make(map[bpf.Key]*watched)} }

// startWatch starts a watch of an address on the segment.
func (s *Segment) startWatch(addr netip.Addr) (*watch, error) {
	leave, err := s.wire.Join(addr)
	if err != nil {
		return nil, fmt.Errorf("watch %s on %s: %w", addr, s.name, err)
	}
	w, err := s.set.watches.start(s.key(addr))
	if err != nil {
		leave()
		return nil, err
	}
	w.leave = sync.OnceFunc(leave)
	return w, nil
}

// Listen passes the hits on an address to heard, one after the other, until end. An event that comes while 64 wait is lost.
func (s *Segment) Listen(addr netip.Addr, heard func(bpf.Event)) (end func() error, err error) {
	w, err := s.startWatch(addr)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	s.set.background(func(ctx context.Context) {
		for {
			select {
			case ev := <-w.events:
				heard(ev)
			case <-ended:
				return
			case <-ctx.Done():
				return
			}
		}
	})
	return func() error { close(ended); return w.end() }, nil
}

// start makes the kernel report every speaker of key, and acks of claims for it. If the address is
// held here, the entry of the lease is used, and the holder's frames are no hits.
func (s *watches) start(key bpf.Key) (*watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	present, installed, err := s.kernel.Leases.Lease(key)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", key, err)
	}
	if !installed {
		// A lease may have been installed meanwhile. The watch uses the entry of that lease.
		err := s.kernel.Leases.Install(key, bpf.Lease{})
		if err != nil && !errors.Is(err, bpf.ErrHeld) {
			return nil, fmt.Errorf("watch %s: %w", key, err)
		}
	}
	w := &watch{set: s, key: key, events: make(chan bpf.Event, watchEvents), held: present, leave: func() {}}
	if s.byKey[key] == nil {
		s.byKey[key] = &watched{watches: make(map[*watch]struct{}), ours: present.Slot == 0}
	}
	s.byKey[key].watches[w] = struct{}{}
	return w, nil
}

// end stops the watch: its channel gets no more events. The last watch removes the entry in the
// kernel, unless that is a lease by then. A second end is no error.
func (w *watch) end() error {
	w.leave()
	s := w.set
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.byKey[w.key]
	if !ok {
		return nil
	}
	delete(at.watches, w)
	if len(at.watches) > 0 {
		return nil
	}
	delete(s.byKey, w.key)
	if !at.ours {
		return nil
	}
	// If the address was leased meanwhile, RemoveWatch leaves the lease.
	if err := s.kernel.Leases.RemoveWatch(w.key); err != nil {
		return fmt.Errorf("stop watching %s: %w", w.key, err)
	}
	return nil
}

// deliver passes ev to the watches of its address. It never blocks.
func (s *watches) deliver(ev bpf.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.byKey[ev.Key]
	if !ok {
		return
	}
	for w := range at.watches {
		select {
		case w.events <- ev:
		default: // the listener reads the state at the end of its round
		}
	}
}
