// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf"
)

// key returns the kernel's key of an address of an entry.
func key(e *attachment.Entry, address attachment.Address) bpf.Key {
	return bpf.Key{Segment: uint32(e.ParentIndex), Addr: address.Addr}
}

// Install writes an address of an entry into the kernel: from then on its slot may use the address,
// unless it waits behind another holder. While the entry is an intent, its interface is down: a
// frame with its MAC comes from another host.
func (g *Guards) Install(e *attachment.Entry, address attachment.Address) error {
	mac, err := net.ParseMAC(e.MAC)
	if err != nil {
		return fmt.Errorf("recorded MAC: %w", err)
	}
	key := key(e, address)
	l := bpf.Lease{
		Token: address.Token, Network: claim.Network(g.Cluster, address.Network), Slot: e.Slot, MAC: mac,
		Disproved: address.Disproved, Behind: address.Behind,
	}
	copy(l.DisprovedBefore[:], address.DisprovedBefore)
	if address.Unproven {
		l.Flags |= bpf.FlagUnproven
	}
	if e.SharedMAC {
		l.Flags |= bpf.FlagSharedMAC
	}
	if e.Phase == attachment.Intent {
		l.Flags |= bpf.FlagDown
	}
	l.Flags |= g.acks(e, false)
	g.installing.Lock()
	defer g.installing.Unlock()
	if err := g.Kernel.Leases.Install(key, l); err != nil {
		return fmt.Errorf("install the lease of %s: %w", key, err)
	}
	return nil
}

// ackFlags are the flags of a lease that say who acknowledges claims for its address.
const ackFlags = bpf.FlagUnguarded | bpf.FlagVF

// acks returns the ackFlags of an entry's leases. off: its PF shows that the VF is off.
func (g *Guards) acks(e *attachment.Entry, off bool) (flags bpf.LeaseFlags) {
	alone := g.Alone(e)
	if alone && off {
		return 0 // the observer of the PF
	}
	if alone {
		flags = bpf.FlagUnguarded // nobody
	}
	if e.Device != "" && !e.Unguarded {
		flags |= bpf.FlagVF
	}
	return flags
}

// Vouch tells the kernel whether the VF of an entry is off at its PF. If only the PF can silence the
// holder, the kernel acknowledges claims for its addresses only while the VF is off.
func (g *Guards) Vouch(e *attachment.Entry, off bool) error {
	flags := g.acks(e, off)
	g.installing.Lock()
	defer g.installing.Unlock()
	for _, address := range e.Addresses {
		key := key(e, address)
		l, installed, err := g.Kernel.Leases.Lease(key)
		if err != nil {
			return err
		}
		if !installed || l.Slot != e.Slot || l.Flags&ackFlags == flags {
			continue
		}
		l.Flags = l.Flags&^ackFlags | flags
		if err := g.Kernel.Leases.Install(key, l); err != nil {
			return fmt.Errorf("tell the kernel about the holder of %s: %w", key, err)
		}
	}
	return nil
}

// Uninstall removes an address on a parent from the kernel, if it still belongs to this slot.
func (g *Guards) Uninstall(parent int, addr netip.Addr, slot uint32) error {
	key := bpf.Key{Segment: uint32(parent), Addr: addr}
	g.installing.Lock()
	defer g.installing.Unlock()
	present, installed, err := g.Kernel.Leases.Lease(key)
	if err != nil || !installed || present.Slot != slot {
		return err
	}
	if err := g.Kernel.Leases.Remove(key); err != nil {
		return fmt.Errorf("remove the lease of %s and slot %d: %w", key, slot, err)
	}
	return nil
}

// Fenced reports whether a newer claim was heard for an address of an entry.
func (g *Guards) Fenced(e *attachment.Entry, address attachment.Address) (bool, error) {
	fenced, err := g.Kernel.Leases.Fenced(key(e, address))
	if err != nil {
		return false, fmt.Errorf("check whether %s is fenced: %w", address.Addr, err)
	}
	return fenced, nil
}

// Claimed returns the greatest token of a claim that was heard for an address of an entry, or 0.
func (g *Guards) Claimed(e *attachment.Entry, address attachment.Address) (uint64, error) {
	s, _, err := g.Kernel.Leases.State(key(e, address))
	if err != nil {
		return 0, fmt.Errorf("read the greatest claim for %s: %w", address.Addr, err)
	}
	return s.MaxToken, nil
}

// Leases returns the leases that the kernel enforces.
func (g *Guards) Leases() (map[bpf.Key]bpf.Lease, error) {
	leases, err := g.Kernel.Leases.All()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's leases: %w", err)
	}
	return leases, nil
}

// MaySpeak reports whether a slot of this node may use an address, on any segment.
func (g *Guards) MaySpeak(addr netip.Addr) (bool, error) {
	leases, err := g.Leases()
	if err != nil {
		return false, err
	}
	for key, l := range leases {
		if key.Addr == addr && l.Slot != 0 {
			return true, nil
		}
	}
	return false, nil
}
