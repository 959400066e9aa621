package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

const identityFile = "identity.json"

// Identity is who this node is to the cluster, as the API server last said.
type Identity struct {
	// Node is the name that the UIDs were asked for.
	Node    string `json:"node"`
	NodeUID string `json:"nodeUID"`
	// Cluster is the UID of the kube-system namespace.
	Cluster string `json:"cluster"`
}

// Identity returns what PutIdentity wrote last, if it wrote.
func (j *Journal) Identity() (Identity, bool) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.identity, j.identity != Identity{}
}

// PutIdentity writes what Identity returns, also after a restart.
func (j *Journal) PutIdentity(id Identity) error {
	path := filepath.Join(j.dir, identityFile)
	w := j.writer(path)
	w.Lock()
	defer w.Unlock()
	if err := store(path, id); err != nil {
		return fmt.Errorf("journal the identity of node %s: %w", id.Node, err)
	}
	j.mu.Lock()
	j.identity = id
	j.mu.Unlock()
	return nil
}

// readIdentity reads who the node was. Without the file the API server tells.
func (j *Journal) readIdentity() error {
	path := filepath.Join(j.dir, identityFile)
	err := load(path, &j.identity)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	j.identity = Identity{}
	return j.setAside(path, err)
}
