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
	// ours: the kernel's entry was installed for these watches and goes with the last one.
	ours bool
}

// watch receives the events of one address until it is ended.
type watch struct {
	set    *watches
	key    bpf.Key
	events chan bpf.Event
	// held is the lease that was installed for the address, with a slot, when
	// the watch began; its Slot is 0 if there was none.
	held bpf.Lease
}

func newWatches(k Kernel) *watches {
	return &watches{kernel: k, byKey: make(map[bpf.Key]*watched)}
}

// start makes the kernel report every speaker for key, and acks for claims on
// network. If the address is held here, the lease's own entry serves, and the
// holder's frames are no hits. token is that of the claim, or 0 without one.
func (s *watches) start(key bpf.Key, network, token uint64) (*watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	present, installed, err := s.kernel.Lease(key)
	if err != nil {
		return nil, fmt.Errorf("look for the lease of %s: %w", key, err)
	}
	w := &watch{set: s, key: key, events: make(chan bpf.Event, watchEvents)}
	if present.Slot != 0 {
		w.held = present
	} else if err := s.install(key, present, network, token); err != nil {
		return nil, fmt.Errorf("watch %s: %w", key, err)
	}
	if s.byKey[key] == nil {
		s.byKey[key] = &watched{watches: make(map[*watch]struct{}), ours: !installed}
	}
	s.byKey[key].watches[w] = struct{}{}
	return w, nil
}

// install writes an entry with slot 0 in place of present, which is empty or of
// slot 0 as well. Its token is not older than any claim that was heard for the
// address: the kernel takes an address that such a claim has fenced for
// somebody else's, and reports nobody who speaks for it.
func (s *watches) install(key bpf.Key, present bpf.Lease, network, token uint64) error {
	st, _, err := s.kernel.State(key)
	if err != nil {
		return err
	}
	entry := bpf.Lease{Network: network, Token: max(token, present.Token, st.MaxToken)}
	if network == 0 {
		entry.Network = present.Network
	}
	err = s.kernel.InstallLease(key, entry)
	if errors.Is(err, bpf.ErrHeld) || errors.Is(err, bpf.ErrOlderToken) {
		return nil // a lease was installed meanwhile, and serves as well
	}
	return err
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
