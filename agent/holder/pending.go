package holder

import "sync"

// pending are the attachments whose leases have to be looked at. Safe for
// concurrent use.
type pending struct {
	mu      sync.Mutex
	waiting map[attachment]bool
	// wake is full when something was added since the worker looked.
	wake chan struct{}
}

func newPending() *pending {
	return &pending{waiting: map[attachment]bool{}, wake: make(chan struct{}, 1)}
}

// add wakes the worker for some attachments.
func (p *pending) add(all ...attachment) {
	if len(all) == 0 {
		return
	}
	p.putBack(all...)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// putBack leaves attachments to the worker's next look.
func (p *pending) putBack(all ...attachment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range all {
		p.waiting[a] = true
	}
}

// take empties the set.
func (p *pending) take() map[attachment]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.waiting
	p.waiting = map[attachment]bool{}
	return taken
}
