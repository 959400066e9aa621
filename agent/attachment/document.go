// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"sync"
	"time"
)

const (
	identityFile  = "identity.json"
	rotationsFile = "rotations.json"
	pairsFile     = "pairs.json"
	servicesFile  = "services.json"
)

// Identity identifies this node and its cluster, as last read from the API server.
type Identity struct {
	// Node is the name of the Node object with the UID NodeUID.
	Node    string `json:"node"`
	NodeUID string `json:"nodeUID"`
	// Cluster is the UID of the kube-system namespace.
	Cluster string `json:"cluster"`
}

// Rotations are the addresses that this node handed out last, by pool.
type Rotations = map[string]netip.Addr

// Pair is a pool and a parent. A pod of this node got an address of the pool on the parent.
type Pair struct {
	Pool   string `json:"pool"`
	Parent string `json:"parent"`
	// Used is the time at which the last such pod got its address, Before that of the pod before.
	Used   time.Time `json:"used"`
	Before time.Time `json:"before,omitzero"`
}

// Document is one value in a file of its own. Safe for concurrent use.
type Document[T any] struct {
	path, subject string
	// writing serialises the writes.
	writing sync.Mutex

	mu    sync.RWMutex
	value T
	known bool
}

// readDocument reads a document. Without its file, there is no value.
func readDocument[T any](t *Table, file, subject string) (*Document[T], error) {
	d := &Document[T]{path: filepath.Join(t.dir, file), subject: subject}
	var value T
	err := load(d.path, &value)
	switch {
	case err == nil:
		d.value, d.known = value, true
	case !errors.Is(err, fs.ErrNotExist):
		return d, t.setAside(d.path, err)
	}
	return d, nil
}

// Get returns the value that Put wrote last, and false if there is none. The caller must not change it.
func (d *Document[T]) Get() (value T, known bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.value, d.known
}

// Put writes the value to disk. It survives a loss of power. The caller must not change it any more.
func (d *Document[T]) Put(value T) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	if err := store(d.path, value); err != nil {
		return fmt.Errorf("write %s: %w", d.subject, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.value, d.known = value, true
	return nil
}

// restore writes the value again if its file is missing.
func (d *Document[T]) restore() (restored bool, err error) {
	d.writing.Lock()
	defer d.writing.Unlock()
	value, known := d.Get()
	if !known || exists(d.path) {
		return false, nil
	}
	return true, replace(d.path, value)
}
