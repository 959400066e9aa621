// SPDX-License-Identifier: Apache-2.0

// Package mapset opens pinned maps whose layout may change from one version to the next.
//
// Two rules keep the entries readable: keys never change, and values only grow at their end. So
// every entry can be cut or zero-extended. The order of steps is: Open creates the new maps, Carry
// fills them, the caller replaces every program, and Replace moves the new pins over the old ones.
// Each step can be repeated after a crash.
package mapset

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// NextSuffix marks the pin of a new map until all programs use it.
const NextSuffix = "_next"

// ErrSchema is returned if the entries of a pinned map of another version cannot be carried over.
var ErrSchema = errors.New("pinned map has an incompatible layout")

// Set holds all shared maps of this version and, for each changed layout, the old map.
type Set struct {
	dir string
	// Current are the maps of this version by name, Old those whose layout has changed.
	Current, Old map[string]*ebpf.Map
}

// Open opens or creates the pinned maps. It creates maps whose layout has changed next to the
// old ones.
func Open(dir string, specs map[string]*ebpf.MapSpec) (_ *Set, err error) {
	set := &Set{dir: dir, Current: map[string]*ebpf.Map{}, Old: map[string]*ebpf.Map{}}
	if err := os.MkdirAll(set.dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			set.Close()
		}
	}()
	for name, spec := range specs {
		if err := set.open(name, spec); err != nil {
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
	}
	return set, nil
}

func (s *Set) open(name string, spec *ebpf.MapSpec) error {
	path := filepath.Join(s.dir, name)
	pinned, err := openMap(path, spec)
	if err == nil {
		s.Current[name] = pinned
		return nil
	}
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		old, err := ebpf.LoadPinnedMap(path, nil)
		if err != nil {
			return err
		}
		s.Old[name] = old
		path += NextSuffix
		pinned, err := openMap(path, spec)
		if err == nil {
			s.Current[name] = pinned
			return nil
		}
		if errors.Is(err, ebpf.ErrMapIncompatible) {
			return fmt.Errorf("%w: an earlier upgrade to a third version did not finish: %w", ErrSchema, err)
		}
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	s.Current[name] = m
	if err := m.Pin(path); err != nil {
		return fmt.Errorf("pin: %w", err)
	}
	return nil
}

// openMap opens a pinned map. Its error wraps os.ErrNotExist if there is no pin,
// ebpf.ErrMapIncompatible if the layout is another.
func openMap(path string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return nil, err
	}
	if err := spec.Compatible(m); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Close closes all maps. Their pins stay.
func (s *Set) Close() {
	for _, m := range s.Current {
		m.Close()
	}
	for _, m := range s.Old {
		m.Close()
	}
}

// Carry copies the entries of the old maps, except those that forgotten reports. It changes no
// entry that a new map already has.
func (s *Set) Carry(forgotten func(name string) bool) error {
	for name, old := range s.Old {
		if forgotten(name) {
			continue
		}
		if err := carryMap(s.Current[name], old); err != nil {
			return fmt.Errorf("carry over map %s: %w", name, err)
		}
	}
	return nil
}

func carryMap(to, from *ebpf.Map) error {
	if to.KeySize() != from.KeySize() {
		return fmt.Errorf("%w: key of %d bytes was %d", ErrSchema, to.KeySize(), from.KeySize())
	}
	flags := ebpf.UpdateNoExist
	if to.Type() == ebpf.Array {
		flags = ebpf.UpdateAny
	}
	key, value := make([]byte, from.KeySize()), make([]byte, from.ValueSize())
	for it := from.Iterate(); ; {
		if !it.Next(&key, &value) {
			return it.Err()
		}
		grown := make([]byte, to.ValueSize())
		copy(grown, value)
		err := to.Update(key, grown, flags)
		if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
			return fmt.Errorf("%w: %w", ErrSchema, err)
		}
	}
}

// Replace moves the new maps over the old ones, and closes the old ones.
func (s *Set) Replace() error {
	for name, old := range s.Old {
		path := filepath.Join(s.dir, name)
		if err := os.Rename(path+NextSuffix, path); err != nil {
			return fmt.Errorf("replace map %s: %w", name, err)
		}
		old.Close()
		delete(s.Old, name)
	}
	return nil
}
