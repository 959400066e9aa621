// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/bpf/attach"
)

// code holds the guard and the maps of this version. The observer is loaded once for each parent, and
// would keep 0.7 MB, so it is parsed when it is loaded.
type code struct {
	guard *ebpf.CollectionSpec
	// maps are shared by all programs.
	maps map[string]*ebpf.MapSpec
}

func loadCode() (*code, error) {
	guard, err := loadGuard()
	if err != nil {
		return nil, err
	}
	observer, err := loadObserver()
	if err != nil {
		return nil, err
	}
	shared := observer.Maps // it uses all others
	delete(shared, rodata)
	shared[guardMapGuards] = guard.Maps[guardMapGuards]
	return &code{guard, shared}, nil
}

// rodata is the map of the constants. Each load has its own.
const rodata = ".rodata"

// observerOf loads the observer of one parent.
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
