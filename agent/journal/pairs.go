// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"
)

const pairsFile = "pairs.json"

// Pair is a pool and a parent. A pod of this node got an address of the pool on the parent.
type Pair struct {
	Pool   string `json:"pool"`
	Parent string `json:"parent"`
	// Used is the time at which the last such pod got its address. Before is the same of the pod
	// before that one; zero if there was none, or if an earlier version wrote the file.
	Used   time.Time `json:"used"`
	Before time.Time `json:"before,omitzero"`
}

// Pairs returns the pairs that PutPairs wrote last.
func (j *Journal) Pairs() []Pair {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return slices.Clone(j.pairs)
}

// PutPairs writes the pairs to disk. They survive a loss of power.
func (j *Journal) PutPairs(pairs []Pair) error {
	pairs = slices.Clone(pairs)
	path := filepath.Join(j.dir, pairsFile)
	w := j.writer(path)
	w.Lock()
	defer w.Unlock()
	if err := store(path, pairs); err != nil {
		return fmt.Errorf("write the pairs of pool and parent: %w", err)
	}
	j.mu.Lock()
	j.pairs = pairs
	j.mu.Unlock()
	return nil
}

// readPairs reads the pairs. Without the file the next ADDs record them again.
func (j *Journal) readPairs() error {
	path := filepath.Join(j.dir, pairsFile)
	err := load(path, &j.pairs)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	j.pairs = nil
	return j.setAside(path, err)
}
