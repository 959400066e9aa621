// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"maps"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/bpf/attach"
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

// loadGuardPair loads the guard of one pod interface. The verifier folds its constants.
func (gs *guards) loadGuardPair(number uint32, s observerSlot) (attach.Programs, error) {
	return loadPair(gs.code.guard, map[string]any{
		"slot":    number,
		"segment": s.Segment,
		"verify":  s.Flags&slotVerify != 0,

		"host_link_class": attach.HostLinkClass,
	}, gs.tables.maps.shared(), map[string]string{"ingress": "guard_ingress", "egress": "guard_egress"}, guardName(number))
}

// loadObserverPair loads the observer of one parent.
func (o *observers) loadObserverPair(parent uint32) (attach.Programs, error) {
	return loadPair(o.code.observer, map[string]any{"segment": parent}, o.tables.maps.shared(),
		map[string]string{"ingress": observerProgObserverIngress, "egress": observerProgObserverEgress}, observerName)
}

// loadPair loads both programs of a device in parallel, since the verifier takes most of the time.
// The argument called is the name of both programs in the kernel.
func loadPair(spec *ebpf.CollectionSpec, constants map[string]any, shared map[string]*ebpf.Map,
	names map[string]string, called string) (attach.Programs, error) {
	var mu sync.Mutex
	var group errgroup.Group
	p := attach.Programs{}
	for direction, name := range names {
		group.Go(func() error {
			program, err := loadOne(spec, constants, shared, name, called)
			if err != nil {
				return fmt.Errorf("load %s: %w", name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			p[direction] = program
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// loadOne loads one of a collection's programs with its constants and the shared maps.
func loadOne(spec *ebpf.CollectionSpec, constants map[string]any, shared map[string]*ebpf.Map,
	name, called string) (*ebpf.Program, error) {
	// A copy of all programs would be garbage of half a megabyte for each pod.
	one := *spec
	one.Programs = map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}
	spec = one.Copy()
	for name, value := range constants {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set constant %s: %w", name, err)
		}
	}
	spec.Programs[name].Name = called
	replacements := map[string]*ebpf.Map{}
	for name := range spec.Maps {
		if m, ok := shared[name]; ok {
			replacements[name] = m
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements})
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	return coll.DetachProgram(name), nil
}
