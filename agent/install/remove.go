package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveConflist removes a network configuration that Conflist has installed,
// and reports whether it was there. One that does not use the plugin is
// somebody else's, and stays. The plugin stays always: pods that run need it for
// their DEL.
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
	return true, syncDir(dir)
}
