// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// NetworkNamespaces returns the network namespaces that threads of the process
// are in, named as network_namespaces(7) and /proc do.
func (p Process) NetworkNamespaces() ([]string, error) {
	var found []string
	err := p.eachThread(func(dir string) error {
		name, err := os.Readlink(filepath.Join(dir, "ns", "net"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the thread has ended
		}
		if err == nil && !slices.Contains(found, name) {
			found = append(found, name)
		}
		return err
	})
	return found, err
}
