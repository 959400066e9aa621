// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"maps"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"
)

// Code is a collection of compiled programs with the maps that they share and the constants of
// one load, which the verifier folds.
type Code struct {
	Spec      *ebpf.CollectionSpec
	Shared    map[string]*ebpf.Map
	Constants map[string]any
	// Programs are names in the collection, by direction. In the kernel each is called Called.
	Programs map[string]string
	Called   string
}

// Load loads both programs in parallel, since the verifier takes most of the time.
func (c Code) Load() (Programs, error) {
	var mu sync.Mutex
	var group errgroup.Group
	p := Programs{}
	for direction, name := range c.Programs {
		group.Go(func() error {
			program, err := c.loadOne(name)
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

func (c Code) loadOne(name string) (*ebpf.Program, error) {
	// A copy of all programs would be garbage of half a megabyte for each parent.
	one := *c.Spec
	one.Programs = map[string]*ebpf.ProgramSpec{name: c.Spec.Programs[name]}
	spec := one.Copy()
	for name, value := range c.Constants {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set constant %s: %w", name, err)
		}
	}
	spec.Programs[name].Name = c.Called
	replacements := maps.Clone(c.Shared)
	maps.DeleteFunc(replacements, func(name string, _ *ebpf.Map) bool { return spec.Maps[name] == nil })
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements})
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	return coll.DetachProgram(name), nil
}

// Programs holds two programs, by the name of the direction.
type Programs map[string]*ebpf.Program

// Close closes all programs. Links and filters hold theirs.
func (p Programs) Close() {
	for _, prog := range p {
		prog.Close()
	}
}
