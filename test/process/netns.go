// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// NetworkNamespaces returns the network namespaces that threads of the process
// are in, named as network_namespaces(7) and /proc do.
func (p Process) NetworkNamespaces() ([]string, error) {
	tasks := filepath.Join("/proc", strconv.Itoa(p.PID), "task")
	threads, err := os.ReadDir(tasks)
	var found []string
	for _, t := range threads {
		name, err := os.Readlink(filepath.Join(tasks, t.Name(), "ns", "net"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the thread has ended
		}
		if err != nil {
			return nil, err
		}
		if !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return found, err
}
