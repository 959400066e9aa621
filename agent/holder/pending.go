// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"sync"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// Pending are the attachments that recovery has to resume. Safe for concurrent use.
type Pending struct {
	mu      sync.Mutex
	waiting map[agentapi.Attachment]bool
	// wake is full when something was added since the worker looked.
	wake chan struct{}
}

func newPending() *Pending {
	return &Pending{waiting: map[agentapi.Attachment]bool{}, wake: make(chan struct{}, 1)}
}

// Wake returns the channel that receives after each Add.
func (p *Pending) Wake() <-chan struct{} { return p.wake }

// Add adds attachments and wakes the worker.
func (p *Pending) Add(all ...agentapi.Attachment) {
	if len(all) == 0 {
		return
	}
	p.PutBack(all...)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// PutBack adds attachments for the worker's next look, without waking it.
func (p *Pending) PutBack(all ...agentapi.Attachment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range all {
		p.waiting[a] = true
	}
}

// Take empties the set and returns what it held.
func (p *Pending) Take() map[agentapi.Attachment]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.waiting
	p.waiting = map[agentapi.Attachment]bool{}
	return taken
}
