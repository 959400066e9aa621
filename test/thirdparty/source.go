// SPDX-License-Identifier: Apache-2.0

package thirdparty

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mainModule is the first line of the project's go.mod.
const mainModule = "module github.com/fenceline/fenceline\n"

// Root returns the project's directory: the nearest one, from the working
// directory upwards, whose go.mod is the project's.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the project's directory: %w", err)
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), mainModule) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the project's directory: no go.mod of the project at or above %s", start)
		}
	}
}

// CacheDir returns the cache directory, which all checkouts share:
// ${FENCELINE_CACHE:-$HOME/.cache/fenceline}.
func CacheDir() (string, error) {
	if dir := os.Getenv("FENCELINE_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w", err)
	}
	return filepath.Join(home, ".cache", "fenceline"), nil
}

var errNotRequired = errors.New("not required by go.mod")

// requiredVersion reads the version of module from the text of a go.mod.
func requiredVersion(gomod, module string) (string, error) {
	for line := range strings.Lines(gomod) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == module && strings.HasPrefix(fields[1], "v") {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("version of %s: %w", module, errNotRequired)
}
