// SPDX-License-Identifier: Apache-2.0

// Package fakenode is a node for tests. Its agent's holders, guards and recovery are real. Its API
// server, kernel, segment and Warm leases are in memory. The agent can die before any of its
// effects, and start again.
package fakenode

import (
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/bpf"
)

// SetMAC changes the MAC of a pod's interface.
func (r *Node) SetMAC(netns string, mac net.HardwareAddr) {
	r.macs.Lock()
	defer r.macs.Unlock()
	r.set[netns] = mac
}

// links sets MAC and state of the interfaces of a node's pods.
type links struct{ *Node }

func (l links) SetMAC(netns, _ string, mac net.HardwareAddr) error {
	l.Node.SetMAC(netns, mac)
	return nil
}

func (l links) SetDown(netns, _ string) error {
	l.Lowered = append(l.Lowered, netns)
	return nil
}

func (l links) IgnoreRouters(netns, _ string) error {
	l.Strict = append(l.Strict, netns)
	return nil
}

func (r *Node) setRemoved(netns string, removed bool) {
	r.macs.Lock()
	defer r.macs.Unlock()
	r.removed[netns] = removed
}

func (r *Node) isRemoved(netns string) bool {
	r.macs.Lock()
	defer r.macs.Unlock()
	return r.removed[netns]
}

func (r *Node) macOf(netns string) net.HardwareAddr {
	r.macs.Lock()
	defer r.macs.Unlock()
	if mac, ok := r.set[netns]; ok {
		return mac
	}
	return MacOf(netns)
}

func MacOf(netns string) net.HardwareAddr {
	return net.HardwareAddr{2, 0, 0, 0, byte(len(netns)), netns[len(netns)-1]}
}

// Kernel keeps the rules of package bpf in memory; package bpf tests them on the real kernel. It
// outlives the agent, as pins do.
type Kernel struct {
	mu       sync.Mutex
	Enforced map[bpf.Key]bpf.Lease
	Claims   map[bpf.Key]uint64
	// Known is the newest revision of the store that the agent has told the kernel.
	Known uint64
	dead  map[uint32]bool
	// Guards are the devices of the slots, gone the devices that no longer exist, and Lost the guards
	// whose device is unknown.
	Guards map[uint32]string
	gone   map[string]bool
	// Links are the slots on the node's ends of host links, by the name of the interface.
	Links map[string]uint32
	Lost  map[uint32]bool
	// Pinned are the slots whose guards are pinned.
	Pinned   map[uint32]bool
	PinFails error
	// Bypasses: all pods may have sockets whose frames skip their guards.
	Bypasses bool
}

func NewKernel() *Kernel {
	return &Kernel{
		Enforced: map[bpf.Key]bpf.Lease{}, Claims: map[bpf.Key]uint64{}, dead: map[uint32]bool{},
		Guards: map[uint32]string{}, gone: map[string]bool{}, Lost: map[uint32]bool{}, Pinned: map[uint32]bool{},
		Links: map[string]uint32{},
	}
}

// Parts returns the kernel as guards see it.
func (k *Kernel) Parts() guards.Kernel {
	return guards.Kernel{Guards: k, HostLinks: k, Slots: k, Sockets: k, Leases: k}
}

// Pin records the call. A guard that is only staged judges frames as well.
func (k *Kernel) Pin(g bpf.Guard) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.PinFails != nil {
		return k.PinFails
	}
	k.Pinned[g.Slot] = true
	return nil
}

func (k *Kernel) IsPinned(slot uint32) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Pinned[slot]
}

func (k *Kernel) Stage(g bpf.Guard) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	device := g.NetNS + " " + g.Interface
	switch on, pinned := k.Guards[g.Slot]; {
	case k.gone[device]:
		return bpf.ErrNoDevice
	case pinned && on != device && !k.gone[on]:
		return bpf.ErrPinned
	}
	// A slot that was killed stays dead until it is detached.
	k.Guards[g.Slot] = device
	return nil
}

// Refuse and MayBypass: package bpf tests the sockets of pods.
func (k *Kernel) Refuse(uint32, string) (before bool, err error) { return false, nil }
func (k *Kernel) MayBypass(uint32) bool                          { return k.Bypasses }

// Unguarded: a node that cannot refuse such sockets lets all its pods have them.
func (k *Kernel) Unguarded() error {
	if k.Bypasses {
		return bpf.ErrSocketsOff
	}
	return nil
}

func (k *Kernel) Detach(slot uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.Guards, slot)
	delete(k.dead, slot)
	if k.linked(slot) {
		k.dead[slot] = true
	}
	return nil
}

func (k *Kernel) Guard(g bpf.Guard, ifname string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, guarded := k.Guards[g.Slot]; !guarded && !k.dead[g.Slot] {
		return bpf.ErrNoGuard
	}
	k.Links[ifname] = g.Slot
	return nil
}

func (k *Kernel) Guarded(slot uint32, ifname string) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	on, guarded := k.Links[ifname]
	return guarded && on == slot, nil
}

// UnplugLink removes a host link.
func (k *Kernel) UnplugLink(ifname string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.Links, ifname)
}

// linked reports whether the slot guards a host link. It requires mu.
func (k *Kernel) linked(slot uint32) bool {
	return slices.Contains(slices.Collect(maps.Values(k.Links)), slot)
}

func (k *Kernel) Attached(slot uint32) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	device, ok := k.Guards[slot]
	return ok && !k.gone[device], nil
}

func (k *Kernel) Sweep() (swept []uint32, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for slot, device := range k.Guards {
		if k.gone[device] && !k.linked(slot) {
			delete(k.Guards, slot)
			delete(k.dead, slot)
			swept = append(swept, slot)
		}
	}
	for slot := range k.dead {
		if _, guards := k.Guards[slot]; !guards && !k.Lost[slot] && !k.linked(slot) {
			delete(k.dead, slot)
			swept = append(swept, slot)
		}
	}
	return swept, nil
}

func (k *Kernel) Kill(slot uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slot == 0 {
		return bpf.ErrSlot
	}
	k.dead[slot] = true
	return nil
}

func (k *Kernel) Dead(slot uint32) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead[slot], nil
}

func (k *Kernel) Used(slot uint32) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, guards := k.Guards[slot]
	return guards || k.dead[slot] || k.Lost[slot], nil
}

func (k *Kernel) Install(key bpf.Key, l bpf.Lease) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.Behind != 0 {
		if present, ok := k.Enforced[key]; ok && present.Slot != l.Slot {
			return bpf.ErrHeld
		}
		k.Claims[key] = max(k.Claims[key], l.Behind)
		l.Token, l.Behind = l.Behind-1, 0
	}
	if l.Slot == 0 && k.Enforced[key].Slot != 0 && l.Flags&bpf.FlagTurns == 0 {
		return bpf.ErrHeld
	}
	if k.Enforced[key].Token > l.Token {
		return bpf.ErrOlderToken
	}
	k.Enforced[key] = l
	return nil
}

func (k *Kernel) Remove(key bpf.Key) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.Enforced, key)
	return nil
}

func (k *Kernel) Lease(key bpf.Key) (bpf.Lease, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.Enforced[key]
	return l, ok, nil
}

func (k *Kernel) All() (map[bpf.Key]bpf.Lease, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.Enforced), nil
}

func (k *Kernel) Fenced(key bpf.Key) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.Enforced[key]
	return l.Slot != 0 && k.state(key).Fences(l), nil
}

func (k *Kernel) State(key bpf.Key) (bpf.State, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.Enforced[key]
	return k.state(key), ok, nil
}

// state requires mu.
func (k *Kernel) state(key bpf.Key) bpf.State { return bpf.State{MaxToken: k.Claims[key]} }

// Revision returns Known.
func (k *Kernel) Revision() (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Known, nil
}

// Claimed records a valid claim of another node.
func (k *Kernel) Claimed(key bpf.Key, token uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.Enforced[key]
	if token == l.Disproved || slices.Contains(l.DisprovedBefore[:], token) {
		return
	}
	if l.Disproved != 0 && k.Claims[key] == l.Disproved {
		k.Claims[key] = token
	}
	k.Claims[key] = max(k.Claims[key], token)
}

// Speakers returns the slots whose frames from an address would pass.
func (k *Kernel) Speakers(key bpf.Key) (slots []uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.Enforced[key]
	device, guarded := k.Guards[l.Slot]
	if guarded && !k.gone[device] && !k.muted(device) && !k.state(key).Fences(l) {
		slots = append(slots, l.Slot)
	}
	return slots
}

// muted reports whether one of the guards on a device has a dead slot. It requires mu.
func (k *Kernel) muted(device string) bool {
	for slot, on := range k.Guards {
		if on == device && k.dead[slot] {
			return true
		}
	}
	return false
}

// IsDead reports whether a slot was killed.
func (k *Kernel) IsDead(slot uint32) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead[slot]
}

// Unplug removes a device.
func (k *Kernel) Unplug(netns, ifname string) { k.plug(netns, ifname, false) }

// Plug brings a device back. It has no guard.
func (k *Kernel) Plug(netns, ifname string) { k.plug(netns, ifname, true) }

func (k *Kernel) plug(netns, ifname string, in bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	device := netns + " " + ifname
	k.gone[device] = !in
	if in {
		maps.DeleteFunc(k.Guards, func(_ uint32, on string) bool { return on == device })
	}
}
