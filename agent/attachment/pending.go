// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"sync"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/loop"
)

// Pending is a set of attachments that wait for a worker. Safe for concurrent use.
type Pending struct {
	mu      sync.Mutex
	waiting map[agentapi.Attachment]bool
	// wake is up when something was added since the worker looked.
	wake loop.Wake
}

// NewPending returns an empty set.
func NewPending() *Pending {
	return &Pending{waiting: map[agentapi.Attachment]bool{}, wake: loop.NewWake()}
}

// Wake returns the channel that receives after each Add.
func (p *Pending) Wake() <-chan struct{} { return p.wake }

// Add adds attachments and wakes the worker.
func (p *Pending) Add(all ...agentapi.Attachment) {
	if len(all) == 0 {
		return
	}
	p.PutBack(all...)
	p.wake.Up()
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

// Empty reports whether nothing waits.
func (p *Pending) Empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting) == 0
}
