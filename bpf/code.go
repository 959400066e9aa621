package bpf

import (
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
)

// code is the compiled programs and maps of this version.
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

// rodata holds the constants of a load, in a map of its own.
const rodata = ".rodata"

// maps are those that all programs share; the observer has every one of them.
func (c *code) maps() map[string]*ebpf.MapSpec {
	shared := maps.Clone(c.observer.Maps)
	delete(shared, rodata)
	return shared
}

// pair is the programs of one device, by direction name.
type pair map[string]*ebpf.Program

func (p pair) close() {
	for _, prog := range p {
		prog.Close()
	}
}

// loadGuardPair loads the guard of one pod interface, with its constants folded in by the verifier.
func (k *Kernel) loadGuardPair(number uint32, s observerSlot) (pair, error) {
	return loadPair(k.code.guard, map[string]any{
		"slot":         number,
		"segment":      s.Segment,
		"verify":       s.Flags&slotVerify != 0,
		"source_guard": s.Flags&slotSourceGuard != 0,
	}, k.maps.shared(), map[string]string{"ingress": "guard_ingress", "egress": "guard_egress"})
}

// loadObserverPair loads the observer of one parent.
func (k *Kernel) loadObserverPair(parent uint32) (pair, error) {
	return loadPair(k.code.observer, map[string]any{"segment": parent}, k.maps.shared(),
		map[string]string{"ingress": observerProgObserverIngress, "egress": observerProgObserverEgress})
}

func loadPair(spec *ebpf.CollectionSpec, constants map[string]any, shared map[string]*ebpf.Map,
	names map[string]string) (pair, error) {
	spec = spec.Copy()
	for name, value := range constants {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set constant %s: %w", name, err)
		}
	}
	wanted := map[string]*ebpf.ProgramSpec{}
	for _, name := range names {
		wanted[name] = spec.Programs[name]
	}
	spec.Programs = wanted
	replacements := map[string]*ebpf.Map{}
	for name := range spec.Maps {
		if m, ok := shared[name]; ok {
			replacements[name] = m
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements})
	if err != nil {
		return nil, fmt.Errorf("load programs: %w", err)
	}
	defer coll.Close()
	p := pair{}
	for direction, name := range names {
		p[direction] = coll.DetachProgram(name)
	}
	return p, nil
}
