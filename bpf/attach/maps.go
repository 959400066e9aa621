// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
)

// ErrLayout is returned by OpenMaps if a pinned map has the layout of another version.
var ErrLayout = errors.New("a pinned map has the layout of another version; go back to that version, or drain the node and reboot it")

// OpenMaps opens the pinned maps, and creates and pins those that are missing.
func (d Dir) OpenMaps(specs map[string]*ebpf.MapSpec) (_ map[string]*ebpf.Map, err error) {
	dir := filepath.Join(string(d), mapsDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	opened := map[string]*ebpf.Map{}
	defer func() {
		if err != nil {
			for _, m := range opened {
				m.Close()
			}
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		spec := specs[name].Copy()
		spec.Pinning = ebpf.PinByName
		m, err := ebpf.NewMapWithOptions(spec, ebpf.MapOptions{PinPath: dir})
		if errors.Is(err, ebpf.ErrMapIncompatible) {
			return nil, fmt.Errorf("map %s: %w: %w", name, ErrLayout, err)
		}
		if err != nil {
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
		opened[name] = m
	}
	return opened, nil
}
