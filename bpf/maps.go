// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/cilium/ebpf"
)

// openMaps opens the pinned maps, and creates and pins those that are missing.
func openMaps(dir string, specs map[string]*ebpf.MapSpec) (_ map[string]*ebpf.Map, err error) {
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

// typed returns the maps of a set by name.
func typed(m map[string]*ebpf.Map) *observerMaps {
	return &observerMaps{
		Ceiling: m[observerMapCeiling], Counters: m[observerMapCounters], Events: m[observerMapEvents], Gate: m[observerMapGate],
		Hearing: m[observerMapHearing], HearingFresh: m[observerMapHearingFresh], Keys: m[observerMapKeys], Leases: m[observerMapLeases],
		LocalIndex: m[observerMapLocalIndex], Locals: m[observerMapLocals], NetworkIndex: m[observerMapNetworkIndex], Networks: m[observerMapNetworks], Offences: m[observerMapOffences],
		OwnMacs: m[observerMapOwnMacs], Parents: m[observerMapParents], Sightings: m[observerMapSightings],
		Slots: m[observerMapSlots], SourceMacs: m[observerMapSourceMacs], Sources: m[observerMapSources],
		States: m[observerMapStates],
	}
}

// shared is the inverse of typed, for loading programs.
func (m *observerMaps) shared() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		observerMapCeiling: m.Ceiling, observerMapCounters: m.Counters, observerMapEvents: m.Events, observerMapGate: m.Gate,
		observerMapHearing: m.Hearing, observerMapHearingFresh: m.HearingFresh, observerMapKeys: m.Keys, observerMapLeases: m.Leases,
		observerMapLocalIndex: m.LocalIndex, observerMapLocals: m.Locals, observerMapNetworkIndex: m.NetworkIndex, observerMapNetworks: m.Networks, observerMapOffences: m.Offences,
		observerMapOwnMacs: m.OwnMacs, observerMapParents: m.Parents, observerMapSightings: m.Sightings,
		observerMapSlots: m.Slots, observerMapSourceMacs: m.SourceMacs, observerMapSources: m.Sources,
		observerMapStates: m.States,
	}
}
