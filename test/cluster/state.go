// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fenceline/fenceline/test/process"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// state is the state file of a cluster, with which another process can use it and take it down.
type state struct {
	Options Options
	// Nodes are the first processes of the nodes.
	Nodes []process.Process
	// Binaries are the third-party directories by component.
	Binaries map[string]string
}

// ErrNotUp reports that there is no cluster with that prefix.
var ErrNotUp = errors.New("no such cluster is up")

// stateDir returns the directory of a cluster. Nodes have an /etc, /opt and
// /var of their own and could not see it there.
func stateDir(prefix string) (string, error) {
	cache, err := thirdparty.CacheDir()
	if err != nil {
		return "", err
	}
	for _, hidden := range []string{"/etc", "/opt", "/var", "/run"} {
		if rel, err := filepath.Rel(hidden, cache); err == nil && filepath.IsLocal(rel) {
			return "", fmt.Errorf("the cache directory %s is below %s, which nodes do not see; set FENCELINE_CACHE", cache, hidden)
		}
	}
	return filepath.Join(cache, "clusters", prefix), nil
}

func (s state) save(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write the state of the cluster: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cluster.json"), data, 0o644); err != nil {
		return fmt.Errorf("write the state of the cluster: %w", err)
	}
	return nil
}

func loadState(dir string) (state, error) {
	var s state
	data, err := os.ReadFile(filepath.Join(dir, "cluster.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return s, ErrNotUp
	}
	if err != nil {
		return s, fmt.Errorf("read the state of the cluster: %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("read the state of the cluster in %s: %w", dir, err)
	}
	return s, nil
}
