package segment

import (
	"errors"
	"fmt"
	"sync"

	"github.com/fenceline/fenceline/bpf"
)

// watchEvents is how many events a watch keeps for a busy listener. What does
// not fit is still in the kernel's state.
const watchEvents = 64

// watches hands kernel events to those who wait for them, and keeps an entry
// for each watched address in the kernel. Safe for concurrent use.
type watches struct {
	kernel Kernel

	mu    sync.Mutex
	byKey map[bpf.Key]*watched
}

// watched is one address that somebody here waits for.
type watched struct {
	watches map[*watch]struct{}
	// ours: the kernel's entry is a watch, perhaps of an agent before this one, and goes with the last of these.
	ours bool
}

// watch receives the events of one address until it is ended.
type watch struct {
	set    *watches
	key    bpf.Key
	events chan bpf.Event
	// held is the lease that was installed for the address when the watch
	// began; Slot 0: nobody here held it.
	held bpf.Lease
}

func newWatches(k Kernel) *watches {
	return &watches{kernel: k, byKey: make(map[bpf.Key]*watched)}
}

// start makes the kernel report every speaker for key, and acks of claims for
// it. If the address is held here, the lease's own entry serves, and the
// holder's frames are no hits.
func (s *watches) start(key bpf.Key) (*watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	present, installed, err := s.kernel.Lease(key)
	if err != nil {
		return nil, fmt.Errorf("look for the lease of %s: %w", key, err)
	}
	if !installed {
		// A lease that was installed this moment is in the way, and serves as well.
		err := s.kernel.InstallLease(key, bpf.Lease{})
		if err != nil && !errors.Is(err, bpf.ErrHeld) {
			return nil, fmt.Errorf("watch %s: %w", key, err)
		}
	}
	w := &watch{set: s, key: key, events: make(chan bpf.Event, watchEvents), held: present}
	if s.byKey[key] == nil {
		s.byKey[key] = &watched{watches: make(map[*watch]struct{}), ours: present.Slot == 0}
	}
	s.byKey[key].watches[w] = struct{}{}
	return w, nil
}

// end stops the watch; its channel gets no more events. The entry in the kernel
// is removed with the last watch, unless it has become a lease by then. Ending
// twice is no error.
func (w *watch) end() error {
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
	// The address may have been leased meanwhile; then the entry is the lease's.
	if err := s.kernel.RemoveWatch(w.key); err != nil {
		return fmt.Errorf("stop watching %s: %w", w.key, err)
	}
	return nil
}

// deliver hands ev to those who watch its address. It never blocks.
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
