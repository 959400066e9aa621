// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/bpf/enforce"
)

// code holds the compiled programs and the maps of this version.
type code struct {
	guard, observer *ebpf.CollectionSpec
}

func loadCode() (*code, error) {
	guard, err := loadGuard()
	if err != nil {
		return nil, fmt.Errorf("parse guard: %w", err)
	}
	observer, err := loadObserver()
	if err != nil {
		return nil, fmt.Errorf("parse observer: %w", err)
	}
	return &code{guard: guard, observer: observer}, nil
}

// rodata is the map of the constants. Each load has its own.
const rodata = ".rodata"

// maps returns the maps that all programs share. The observer uses all of them.
func (c *code) maps() map[string]*ebpf.MapSpec {
	shared := maps.Clone(c.observer.Maps)
	delete(shared, rodata)
	return shared
}

// loadGuard loads the guard of one pod interface.
func (c *code) loadGuard(slot uint32, r enforce.Record, shared map[string]*ebpf.Map) (attach.Programs, error) {
	return attach.Code{
		Spec: c.guard, Shared: shared,
		Constants: map[string]any{
			"slot": slot, "segment": r.Segment, "verify": r.Verify, "host_link_class": attach.HostLinkClass,
		},
		Programs: map[string]string{"ingress": "guard_ingress", "egress": "guard_egress"},
		Called:   enforce.ProgramName(slot),
	}.Load()
}

// loadObserver loads the observer of one parent.
func (c *code) loadObserver(parent uint32, shared map[string]*ebpf.Map) (attach.Programs, error) {
	return attach.Code{
		Spec: c.observer, Shared: shared,
		Constants: map[string]any{"segment": parent},
		Programs:  map[string]string{"ingress": observerProgObserverIngress, "egress": observerProgObserverEgress},
		Called:    "observer",
	}.Load()
}
