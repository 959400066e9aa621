package journal

import (
	"errors"
	"os"
	"sync"
)

// sparesMade is how many files are made ahead, for a burst of pods.
const sparesMade = 8

// spares are empty files that entries will begin in. Safe for concurrent use.
type spares struct {
	// filling is held while files are made: none is once close has returned.
	filling sync.Mutex

	mu     sync.Mutex
	ready  []*os.File
	closed bool
}

// take returns a file, nil if none is ready.
func (s *spares) take() *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ready) == 0 {
		return nil
	}
	f := s.ready[0]
	s.ready = s.ready[1:]
	return f
}

// fill makes files in a directory until sparesMade are ready.
func (s *spares) fill(dir string) error {
	s.filling.Lock()
	defer s.filling.Unlock()
	for s.missing() {
		f, err := os.CreateTemp(dir, unnamedPattern)
		if err != nil {
			return err
		}
		s.put(f)
	}
	return nil
}

func (s *spares) missing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && len(s.ready) < sparesMade
}

func (s *spares) put(f *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(s.ready, f)
}

// close removes what is ready; no more is made.
func (s *spares) close() error {
	s.filling.Lock()
	defer s.filling.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, f := range s.ready {
		errs = append(errs, discard(f))
	}
	s.ready = nil
	return errors.Join(errs...)
}

func discard(f *os.File) error { return errors.Join(f.Close(), os.Remove(f.Name())) }
