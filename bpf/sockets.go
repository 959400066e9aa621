// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"

	"github.com/fenceline/fenceline/bpf/attach"
)

// ErrSocketsOff is the reason against the guard of sockets if Options name no cgroup hierarchy.
var ErrSocketsOff = errors.New("it is switched off")

const (
	socketsAllowed = uint32(socketsSocketFlagSOCKETS_ALLOWED)
	socketsBefore  = uint32(socketsSocketFlagSOCKETS_BEFORE)
)

// Sockets refuses guarded pods the sockets that skip their guard.
type Sockets struct {
	socketGuards, guardedNetNS *ebpf.Map
	// unguarded is the reason why the program does not run.
	unguarded error
	// here returns the number of the calling thread's network namespace, as the program has it.
	here func() (uint64, error)

	mu sync.Mutex
	// bySlot are the entries of socketGuards. mu guards it.
	bySlot map[uint32]socketsSocketGuard
}

// openSockets attaches the program, or replaces that of an earlier process. If the kernel refuses it,
// unguarded says why. Without a hierarchy the program is detached.
func openSockets(dir attach.Dir, cgroup string, shared map[string]*ebpf.Map) (*Sockets, error) {
	s := &Sockets{socketGuards: shared[socketsMapSocketGuards], guardedNetNS: shared[socketsMapGuardedNetns], here: attach.Cookie}
	var constants map[string]any
	err := features.HaveProgramHelper(ebpf.CGroupSockopt, asm.FnGetNetnsCookie)
	if errors.Is(err, ebpf.ErrNotSupported) { // Linux before 5.15
		s.here = attach.NetNSInode
		constants, err = socketOffsets(ebpf.CGroupSockopt)
	}
	if err != nil {
		s.unguarded = fmt.Errorf("learn the network namespaces of sockets: %w", err)
	}
	if s.bySlot, err = entriesOf[uint32, socketsSocketGuard](s.socketGuards); err != nil {
		return nil, fmt.Errorf("list the guarded sockets: %w", err)
	}
	if cgroup == "" {
		s.unguarded = ErrSocketsOff
		return s, attach.Unpin(dir.Sockets())
	}
	fresh := true
	if s.unguarded == nil {
		if fresh, err = attachSockets(dir, cgroup, shared, constants); err != nil {
			s.unguarded = fmt.Errorf("guard the sockets of pods: %w", err)
		}
	}
	for slot, g := range maps.Clone(s.bySlot) {
		if fresh { // without the program, the pods may have made any socket
			err = s.forget(slot)
		} else { // the earlier process may have ended between two writes
			err = s.tell(g.Netns)
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func attachSockets(dir attach.Dir, cgroup string, shared map[string]*ebpf.Map, constants map[string]any) (fresh bool, err error) {
	spec, err := loadSockets()
	if err != nil {
		return false, err
	}
	const name = "setsockopt"
	programs, err := attach.Code{
		Spec: spec, Shared: shared, Constants: constants, Programs: map[string]string{name: socketsProgSocketSetsockopt}, Called: "sockets",
	}.Load()
	if err != nil {
		return false, err
	}
	defer programs.Close()
	return attach.AttachCgroup(dir.Sockets(), cgroup, programs[name])
}

// Unguarded returns why pods may have sockets that skip their guard; nil if they get none.
func (s *Sockets) Unguarded() error { return s.unguarded }

// Refuse refuses the sockets that skip a guard to the network namespace at a path, until the slot is
// detached; "" is the calling thread's. A socket that is there keeps its options: before reports that this
// call found raw sockets. It returns ErrNoDevice if the namespace does not exist.
func (s *Sockets) Refuse(slot uint32, netns string) (before bool, err error) {
	if s.unguarded == nil {
		err = attach.InNetNS(netns, func() (err error) { before, err = s.guardHere(slot); return err })
	}
	if err != nil {
		return false, fmt.Errorf("guard the sockets of slot %d: %w", slot, attach.NoDevice(err))
	}
	return before, nil
}

// guardHere is Refuse for the calling thread's network namespace.
func (s *Sockets) guardHere(slot uint32) (before bool, err error) {
	netns, err := s.here()
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.bySlot[slot]
	if ok && old.Netns == netns {
		return false, nil
	}
	g := socketsSocketGuard{Netns: netns}
	beside, known := beside(s.bySlot, netns)
	if known { // the sockets that are there were judged, or seen then
		g.Flags = beside.Flags & socketsBefore
	}
	if err := s.put(slot, g); err != nil {
		return false, err
	}
	if ok {
		if err := s.tell(old.Netns); err != nil {
			return false, err
		}
	}
	if known {
		return false, nil
	}
	// The entry comes first: no socket gets the option after the look.
	if before, err = attach.HasRawSockets(); err != nil || !before {
		return false, err
	}
	g.Flags = socketsBefore
	return true, s.put(slot, g)
}

// beside returns the entry of a slot in a network namespace.
func beside(entries map[uint32]socketsSocketGuard, netns uint64) (socketsSocketGuard, bool) {
	for _, g := range entries {
		if g.Netns == netns {
			return g, true
		}
	}
	return socketsSocketGuard{}, false
}

// Allow allows a slot the sockets that skip its guard, or refuses them again. They need the
// allowance of every slot in their network namespace. Without a guard of the slot it does nothing.
func (s *Sockets) Allow(slot uint32, allowed bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.bySlot[slot]
	if !ok || allowed == (g.Flags&socketsAllowed != 0) {
		return nil
	}
	if allowed {
		g.Flags |= socketsAllowed
	} else {
		g.Flags = g.Flags&^socketsAllowed | socketsBefore // a socket may have the option
	}
	return s.put(slot, g)
}

// MayBypass reports whether frames of a slot may skip its guard: the program does not run, a pool allows
// such sockets, or the network namespace has had raw sockets that the program has not judged. It does not
// know of 32-bit programs, which the kernel does not judge.
func (s *Sockets) MayBypass(slot uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.bySlot[slot]
	return s.unguarded != nil || !ok || g.Flags != 0
}

// put writes the entry of a slot. It needs mu.
func (s *Sockets) put(slot uint32, g socketsSocketGuard) error {
	if err := s.socketGuards.Put(slot, g); err != nil {
		return fmt.Errorf("write the socket guard of slot %d: %w", slot, err)
	}
	s.bySlot[slot] = g
	return s.tell(g.Netns)
}

// forget ends the guard of a slot that is free.
func (s *Sockets) forget(slot uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.bySlot[slot]
	if !ok {
		return nil
	}
	delete(s.bySlot, slot)
	if err := s.tell(g.Netns); err != nil {
		return err
	}
	if err := deleteEntry(s.socketGuards, slot); err != nil {
		return fmt.Errorf("end the socket guard of slot %d: %w", slot, err)
	}
	return nil
}

// tell tells the program whether it refuses these sockets to a network namespace: one slot without
// the allowance is enough. It needs mu.
func (s *Sockets) tell(netns uint64) error {
	for _, g := range s.bySlot {
		if g.Netns == netns && g.Flags&socketsAllowed == 0 {
			if err := s.guardedNetNS.Put(netns, uint8(1)); err != nil {
				return fmt.Errorf("refuse sockets to a network namespace: %w", err)
			}
			return nil
		}
	}
	if err := deleteEntry(s.guardedNetNS, netns); err != nil {
		return fmt.Errorf("allow sockets to a network namespace: %w", err)
	}
	return nil
}
