// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fenceline/fenceline/internal/wholefile"
)

// RemoveConflist removes a network configuration that Conflist has installed, and reports whether
// the configuration was there. A configuration that does not use the plugin stays. The plugin
// always stays: running pods need it for their DEL.
func RemoveConflist(dir, name string) (changed bool, err error) {
	path := filepath.Join(dir, name)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, sweep(dir)
	}
	if err != nil {
		return false, fmt.Errorf("remove the CNI configuration: %w", err)
	}
	if ours := validate(name, content) == nil; !ours {
		return false, nil
	}
	if err := errors.Join(os.Remove(path), sweep(dir)); err != nil {
		return false, fmt.Errorf("remove the CNI configuration: %w", err)
	}
	return true, wholefile.SyncDir(dir)
}
