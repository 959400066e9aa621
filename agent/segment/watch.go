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
	byKey map[bpf.Key]map[*watch]struct{}
}

// watch receives the events of one address until it is ended.
type watch struct {
	set    *watches
	key    bpf.Key
	events chan bpf.Event
}

func newWatches(k Kernel) *watches {
	return &watches{kernel: k, byKey: make(map[bpf.Key]map[*watch]struct{})}
}

// start makes the kernel report every speaker for key. If a lease is installed,
// its entry serves, and the holder's own frames are no hits; otherwise an entry
// with slot 0 is installed until the last watch of key ends.
func (s *watches) start(key bpf.Key) (*watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, installed, err := s.kernel.Lease(key)
	if err != nil {
		return nil, fmt.Errorf("look for the lease of %s: %w", key, err)
	}
	if !installed {
		// A lease installed since then is refused as held, and serves as well.
		if err := s.kernel.InstallLease(key, bpf.Lease{}); err != nil && !errors.Is(err, bpf.ErrHeld) {
			return nil, fmt.Errorf("watch %s: %w", key, err)
		}
	}
	w := &watch{set: s, key: key, events: make(chan bpf.Event, watchEvents)}
	if s.byKey[key] == nil {
		s.byKey[key] = make(map[*watch]struct{})
	}
	s.byKey[key][w] = struct{}{}
	return w, nil
}

// end stops the watch; its channel gets no more events. The entry in the kernel
// is removed with the last watch, unless it has become a lease by then.
func (w *watch) end() error {
	s := w.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.byKey[w.key][w]; !ok {
		return nil
	}
	delete(s.byKey[w.key], w)
	if len(s.byKey[w.key]) > 0 {
		return nil
	}
	delete(s.byKey, w.key)
	lease, installed, err := s.kernel.Lease(w.key)
	if err != nil {
		return fmt.Errorf("look for the watch of %s: %w", w.key, err)
	}
	if !installed || lease.Slot != 0 {
		return nil
	}
	if err := s.kernel.RemoveLease(w.key); err != nil {
		return fmt.Errorf("stop watching %s: %w", w.key, err)
	}
	return nil
}

// deliver hands ev to those who watch its address. It never blocks.
func (s *watches) deliver(ev bpf.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.byKey[ev.Key] {
		select {
		case w.events <- ev:
		default: // the listener reads the state at the end of its round
		}
	}
}
