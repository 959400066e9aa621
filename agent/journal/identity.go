// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

const identityFile = "identity.json"

// Identity identifies this node and its cluster, as last read from the API server.
type Identity struct {
	// Node is the name of the Node object with the UID NodeUID.
	Node    string `json:"node"`
	NodeUID string `json:"nodeUID"`
	// Cluster is the UID of the kube-system namespace.
	Cluster string `json:"cluster"`
}

// Identity returns the identity that PutIdentity wrote last, and false if there is none.
func (j *Journal) Identity() (Identity, bool) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.identity, j.identity != Identity{}
}

// PutIdentity writes the identity to disk. It survives a loss of power.
func (j *Journal) PutIdentity(id Identity) error {
	path := filepath.Join(j.dir, identityFile)
	w := j.writer(path)
	w.Lock()
	defer w.Unlock()
	if err := store(path, id); err != nil {
		return fmt.Errorf("write the identity of node %s: %w", id.Node, err)
	}
	j.mu.Lock()
	j.identity = id
	j.mu.Unlock()
	return nil
}

// readIdentity reads the identity. Without the file the agent asks the API server.
func (j *Journal) readIdentity() error {
	path := filepath.Join(j.dir, identityFile)
	err := load(path, &j.identity)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	j.identity = Identity{}
	return j.setAside(path, err)
}
