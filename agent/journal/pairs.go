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

// Pair is a pool and the parent on which a pod of this node got an address of it.
type Pair struct {
	Pool   string `json:"pool"`
	Parent string `json:"parent"`
	// Used is when the last such pod was given one.
	Used time.Time `json:"used"`
}

// Pairs returns what PutPairs wrote last.
func (j *Journal) Pairs() []Pair {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return slices.Clone(j.pairs)
}

// PutPairs writes what Pairs returns, also after a restart.
func (j *Journal) PutPairs(pairs []Pair) error {
	pairs = slices.Clone(pairs)
	path := filepath.Join(j.dir, pairsFile)
	w := j.writer(path)
	w.Lock()
	defer w.Unlock()
	if err := store(path, pairs); err != nil {
		return fmt.Errorf("journal pairs of pool and parent: %w", err)
	}
	j.mu.Lock()
	j.pairs = pairs
	j.mu.Unlock()
	return nil
}

// readPairs reads which pairs were in use. Without the file the next ADDs teach them.
func (j *Journal) readPairs() error {
	path := filepath.Join(j.dir, pairsFile)
	err := load(path, &j.pairs)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	j.pairs = nil
	return j.setAside(path, err)
}
