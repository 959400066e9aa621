// SPDX-License-Identifier: Apache-2.0

package bpf

import "github.com/cilium/ebpf"

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
