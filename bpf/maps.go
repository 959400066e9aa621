package bpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// mapSet is all shared maps of this version and, where the layout has changed, the maps they succeed.
type mapSet struct {
	dir     string
	current map[string]*ebpf.Map
	old     map[string]*ebpf.Map
}

// openMaps opens or creates the pinned maps. Maps whose layout has changed are created beside the old ones.
func openMaps(dir pinDir, specs map[string]*ebpf.MapSpec) (_ *mapSet, err error) {
	set := &mapSet{
		dir:     filepath.Join(string(dir), mapsDir),
		current: map[string]*ebpf.Map{}, old: map[string]*ebpf.Map{},
	}
	if err := os.MkdirAll(set.dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			set.close()
		}
	}()
	for name, spec := range specs {
		if err := set.open(name, spec); err != nil {
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
	}
	return set, nil
}

func (s *mapSet) open(name string, spec *ebpf.MapSpec) error {
	path := filepath.Join(s.dir, name)
	pinned, err := openMap(path, spec)
	if err == nil {
		s.current[name] = pinned
		return nil
	}
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		old, err := ebpf.LoadPinnedMap(path, nil)
		if err != nil {
			return err
		}
		s.old[name] = old
		path += nextSuffix
		pinned, err := openMap(path, spec)
		if err == nil {
			s.current[name] = pinned
			return nil
		}
		if errors.Is(err, ebpf.ErrMapIncompatible) {
			return fmt.Errorf("%w: an upgrade to yet another version was cut short: %w", ErrSchema, err)
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
	s.current[name] = m
	if err := m.Pin(path); err != nil {
		return fmt.Errorf("pin: %w", err)
	}
	return nil
}

// openMap opens a pin. Its errors wrap os.ErrNotExist or ebpf.ErrMapIncompatible, among others.
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

func (s *mapSet) close() {
	for _, m := range s.current {
		m.Close()
	}
	for _, m := range s.old {
		m.Close()
	}
}

func (s *mapSet) typed() *observerMaps {
	m := s.current
	return &observerMaps{
		Counters: m[observerMapCounters], Events: m[observerMapEvents], Gate: m[observerMapGate],
		Hearing: m[observerMapHearing], Keys: m[observerMapKeys], Leases: m[observerMapLeases],
		Networks: m[observerMapNetworks], OwnMacs: m[observerMapOwnMacs], Parents: m[observerMapParents],
		Sightings: m[observerMapSightings], Slots: m[observerMapSlots], States: m[observerMapStates],
	}
}

// shared is the inverse of mapSet.typed, for loading programs.
func (m *observerMaps) shared() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		observerMapCounters: m.Counters, observerMapEvents: m.Events, observerMapGate: m.Gate,
		observerMapHearing: m.Hearing, observerMapKeys: m.Keys, observerMapLeases: m.Leases,
		observerMapNetworks: m.Networks, observerMapOwnMacs: m.OwnMacs, observerMapParents: m.Parents,
		observerMapSightings: m.Sightings, observerMapSlots: m.Slots, observerMapStates: m.States,
	}
}
