// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/bpf/attach"
)

// addGuardMap adds the map of the shared programs to the maps of the code.
func addGuardMap(maps map[string]*ebpf.MapSpec) error {
	code, err := loadGuard()
	if err != nil {
		return err
	}
	maps[guardMapGuards] = code.Maps[guardMapGuards]
	return nil
}

// sharedGuards are the programs that all guards share. Those of virtual functions check claims (verify).
type sharedGuards struct {
	maps     map[string]*ebpf.Map
	programs *ebpf.Map
	// loading is held while programs are loaded. No other lock is taken meanwhile.
	loading sync.Mutex
}

// refresh replaces the programs of an earlier process by this version's. It also loads the needed kinds,
// which have their verify as key. All guarded interfaces run them from then on.
func (s *sharedGuards) refresh(needed map[bool]bool) error {
	for _, verify := range []bool{false, true} {
		n, err := s.loaded(verify)
		if err == nil && (needed[verify] || n > 0) {
			err = s.loadKind(verify)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// prepare loads the programs of one kind if any is missing. It takes some 40 ms.
func (s *sharedGuards) prepare(verify bool) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	n, err := s.loaded(verify)
	if err != nil || n == len(attach.Directions) {
		return err
	}
	return s.loadKind(verify)
}

// loaded returns the number of programs of one kind that are loaded.
func (s *sharedGuards) loaded(verify bool) (loaded int, err error) {
	for _, d := range attach.Directions {
		var id ebpf.ProgramID
		switch err := s.programs.Lookup(guardKey(d.Name, verify), &id); {
		case err == nil:
			loaded++
		case !errors.Is(err, ebpf.ErrKeyNotExist):
			return 0, fmt.Errorf("look for the shared %s guard: %w", d.Name, err)
		}
	}
	return loaded, nil
}

// loadKind parses the object each time, because a parsed one would keep memory.
func (s *sharedGuards) loadKind(verify bool) error {
	code, err := loadGuard()
	if err != nil {
		return err
	}
	programs, err := attach.Code{
		Spec: code, Shared: s.maps,
		Constants: map[string]any{guardVarVerify: verify, guardVarHostLinkClass: attach.HostLinkClass},
		Programs:  map[string]string{"ingress": guardProgGuardIngress, "egress": guardProgGuardEgress},
		Called:    "guard",
	}.Load()
	if err != nil {
		return err
	}
	defer programs.Close()
	for direction, program := range programs {
		if err := s.programs.Put(guardKey(direction, verify), program); err != nil {
			return fmt.Errorf("share the %s guard: %w", direction, err)
		}
	}
	return nil
}

// unload takes the programs away. An interface is mute then, unless its slot is free.
func (s *sharedGuards) unload() error {
	for _, d := range attach.Directions {
		for _, verify := range []bool{false, true} {
			if err := s.programs.Delete(guardKey(d.Name, verify)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("unload the %s guard: %w", d.Name, err)
			}
		}
	}
	return nil
}

// guardKey returns the key of a program in the map of guard.c.
func guardKey(direction string, verify bool) uint32 {
	key := uint32(guardGuardProgramGUARDS)
	if verify {
		key = uint32(guardGuardProgramGUARDS_OF_VF)
	}
	if direction == "egress" {
		return key + uint32(observerWhereGUARD_EGRESS)
	}
	return key + uint32(observerWhereGUARD_INGRESS)
}
