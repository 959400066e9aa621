// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotBPFFS is returned by Open if the directory is not on a BPF file system.
var ErrNotBPFFS = errors.New("not on a bpffs")

// Dir is the directory of the pins: maps/<name>, guards/<slot>/<direction>,
// observers/<ifindex>/<direction>, sockets.
type Dir string

const (
	mapsDir      = "maps"
	guardsDir    = "guards"
	observersDir = "observers"
	socketsPin   = "sockets"
)

// OpenDir returns the directory at a path, and creates it if it is missing.
func OpenDir(path string) (Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return "", fmt.Errorf("statfs: %w", err)
	}
	if uint32(fs.Type) != unix.BPF_FS_MAGIC {
		return "", ErrNotBPFFS
	}
	return Dir(path), nil
}

// Guard returns the pins of a slot's guard.
func (d Dir) Guard(slot uint32) Pins {
	return Pins(filepath.Join(string(d), guardsDir, strconv.FormatUint(uint64(slot), 10)))
}

// Observer returns the pins of a parent's observer.
func (d Dir) Observer(parent int) Pins {
	return Pins(filepath.Join(string(d), observersDir, strconv.Itoa(parent)))
}

// Sockets returns the pin of the link that guards sockets.
func (d Dir) Sockets() string { return filepath.Join(string(d), socketsPin) }

// Guards returns the slots whose guard has pins.
func (d Dir) Guards() ([]uint32, error) { return d.numbers(guardsDir) }

// Observers returns the parents whose observer has pins.
func (d Dir) Observers() ([]uint32, error) { return d.numbers(observersDir) }

// numbers returns the numbers of the pairs below kind. A missing directory has none.
func (d Dir) numbers(kind string) ([]uint32, error) {
	entries, err := os.ReadDir(filepath.Join(string(d), kind))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pinned %s: %w", kind, err)
	}
	var numbers []uint32
	for _, e := range entries {
		n, err := strconv.ParseUint(e.Name(), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("unknown entry %q among the pinned %s: remove it", e.Name(), kind)
		}
		numbers = append(numbers, uint32(n))
	}
	return numbers, nil
}

// RemoveLinks detaches all pinned links and removes them.
func (d Dir) RemoveLinks() error {
	slots, err := d.Guards()
	if err != nil {
		return err
	}
	parents, err := d.Observers()
	if err != nil {
		return err
	}
	for _, slot := range slots {
		if err := d.Guard(slot).Remove(); err != nil {
			return err
		}
	}
	for _, parent := range parents {
		if err := d.Observer(int(parent)).Remove(); err != nil {
			return err
		}
	}
	if err := Unpin(d.Sockets()); err != nil {
		return err
	}
	for _, kind := range []string{guardsDir, observersDir} {
		if err := os.RemoveAll(filepath.Join(string(d), kind)); err != nil {
			return err
		}
	}
	return nil
}

// RemoveMaps removes the pins of all maps.
func (d Dir) RemoveMaps() error { return os.RemoveAll(filepath.Join(string(d), mapsDir)) }
