// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/bpf/guard"
)

// mapsOfCode returns the maps that all programs of this version share.
func mapsOfCode() (map[string]*ebpf.MapSpec, error) {
	observer, err := loadObserver()
	if err != nil {
		return nil, err
	}
	shared := observer.Maps // it uses all maps but the guards'
	delete(shared, rodata)
	return shared, guard.AddMap(shared)
}

// rodata is the map of the constants. Each load has its own.
const rodata = ".rodata"

// observerOf loads the observer of one parent. It parses the object each time, because a parsed one would
// keep 0.7 MB.
func observerOf(parent uint32, shared map[string]*ebpf.Map) (attach.Programs, error) {
	observer, err := loadObserver()
	if err != nil {
		return attach.Programs{}, err
	}
	return attach.Code{
		Spec: observer, Shared: shared,
		Constants: map[string]any{"segment": parent},
		Programs:  map[string]string{"ingress": observerProgObserverIngress, "egress": observerProgObserverEgress},
		Called:    "observer",
	}.Load()
}
