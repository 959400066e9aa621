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
func (s *Pending) Wake() <-chan struct{} { return s.wake }

// Add adds attachments and wakes the worker.
func (s *Pending) Add(all ...agentapi.Attachment) {
	if len(all) == 0 {
		return
	}
	s.PutBack(all...)
	s.wake.Up()
}

// PutBack adds attachments for the worker's next look, without waking it.
func (s *Pending) PutBack(all ...agentapi.Attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range all {
		s.waiting[a] = true
	}
}

// Take empties the set and returns what it held.
func (s *Pending) Take() map[agentapi.Attachment]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.waiting
	s.waiting = map[agentapi.Attachment]bool{}
	return taken
}

// Empty reports whether nothing waits.
func (s *Pending) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) == 0
}
