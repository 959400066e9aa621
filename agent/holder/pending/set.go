// SPDX-License-Identifier: Apache-2.0

// Package pending has the set of attachments that wait for a worker of the agent.
package pending

import (
	"sync"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/idle"
)

// Set is a set of attachments that wait for a worker. Safe for concurrent use.
type Set struct {
	mu      sync.Mutex
	waiting map[agentapi.Attachment]bool
	// wake is up when something was added since the worker looked.
	wake idle.Wake
}

// New returns an empty set.
func New() *Set {
	return &Set{waiting: map[agentapi.Attachment]bool{}, wake: idle.NewWake()}
}

// Wake returns the channel that receives after each Add.
func (s *Set) Wake() <-chan struct{} { return s.wake }

// Add adds attachments and wakes the worker.
func (s *Set) Add(all ...agentapi.Attachment) {
	if len(all) == 0 {
		return
	}
	s.PutBack(all...)
	s.wake.Up()
}

// PutBack adds attachments for the worker's next look, without waking it.
func (s *Set) PutBack(all ...agentapi.Attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range all {
		s.waiting[a] = true
	}
}

// Take empties the set and returns what it held.
func (s *Set) Take() map[agentapi.Attachment]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.waiting
	s.waiting = map[agentapi.Attachment]bool{}
	return taken
}

// Empty reports whether nothing waits.
func (s *Set) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) == 0
}
