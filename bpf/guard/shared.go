// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/bpf/attach"
)

// AddMap adds the map of the shared programs to the maps of the code.
func AddMap(maps map[string]*ebpf.MapSpec) error {
	code, err := loadCode()
	if err != nil {
		return err
	}
	maps[codeMapGuards] = code.Maps[codeMapGuards]
	return nil
}

// Shared are the programs that all guards share. Those of virtual functions check claims (verify).
type Shared struct {
	maps     map[string]*ebpf.Map
	programs *ebpf.Map
	// loading is held while programs are loaded. No other lock is taken meanwhile.
	loading sync.Mutex
}

// NewShared returns the programs in the maps of all programs.
func NewShared(maps map[string]*ebpf.Map) *Shared {
	return &Shared{maps: maps, programs: maps[codeMapGuards]}
}

// Refresh replaces the programs of an earlier process by this version's. It also loads the needed kinds,
// which have their verify as key. All guarded interfaces run them from then on.
func (s *Shared) Refresh(needed map[bool]bool) error {
	for _, verify := range []bool{false, true} {
		loaded, err := s.Loaded(verify)
		if err == nil && (needed[verify] || loaded > 0) {
			err = s.load(verify)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Prepare loads the programs of one kind if any is missing. It takes some 40 ms.
func (s *Shared) Prepare(verify bool) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	loaded, err := s.Loaded(verify)
	if err != nil || loaded == len(attach.Directions) {
		return err
	}
	return s.load(verify)
}

// Loaded returns the number of programs of one kind that are loaded.
func (s *Shared) Loaded(verify bool) (loaded int, err error) {
	for _, d := range attach.Directions {
		var id ebpf.ProgramID
		switch err := s.programs.Lookup(Key(d.Name, verify), &id); {
		case err == nil:
			loaded++
		case !errors.Is(err, ebpf.ErrKeyNotExist):
			return 0, fmt.Errorf("look for the shared %s guard: %w", d.Name, err)
		}
	}
	return loaded, nil
}

// load parses the object each time, because a parsed one would keep memory.
func (s *Shared) load(verify bool) error {
	code, err := loadCode()
	if err != nil {
		return err
	}
	programs, err := attach.Code{
		Spec: code, Shared: s.maps,
		Constants: map[string]any{codeVarVerify: verify, codeVarHostLinkClass: attach.HostLinkClass},
		Programs:  map[string]string{"ingress": codeProgGuardIngress, "egress": codeProgGuardEgress},
		Called:    "guard",
	}.Load()
	if err != nil {
		return err
	}
	defer programs.Close()
	for direction, program := range programs {
		if err := s.programs.Put(Key(direction, verify), program); err != nil {
			return fmt.Errorf("share the %s guard: %w", direction, err)
		}
	}
	return nil
}

// Unload takes the programs away. An interface is mute then, unless its slot is free.
func (s *Shared) Unload() error {
	for _, d := range attach.Directions {
		for _, verify := range []bool{false, true} {
			if err := s.programs.Delete(Key(d.Name, verify)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("unload the %s guard: %w", d.Name, err)
			}
		}
	}
	return nil
}

// Key returns the key of a program in the map of guard.c.
func Key(direction string, verify bool) uint32 {
	key := uint32(codeGuardProgramGUARDS)
	if verify {
		key = uint32(codeGuardProgramGUARDS_OF_VF)
	}
	if direction == "egress" {
		return key + uint32(codeWhereGUARD_EGRESS)
	}
	return key + uint32(codeWhereGUARD_INGRESS)
}
