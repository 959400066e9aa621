// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf"
)

// Leases are the leases of this node's attachments in the kernel. Its methods may be called concurrently.
type Leases struct {
	kernel KernelLeases
	// cluster is the UID of the kube-system namespace.
	cluster string
	// alone reports whether only its PF can silence the VF of an entry.
	alone func(*attachment.Entry) bool
	// installing orders the installs and the removals: a sweep must not remove a lease that a new holder has
	// installed meanwhile.
	installing sync.Mutex
}

// key returns the kernel's key of an address of an entry.
func key(e *attachment.Entry, address attachment.Address) bpf.Key {
	return bpf.Key{Segment: uint32(e.ParentIndex), Addr: address.Addr}
}

// Install writes an address of an entry into the kernel: from then on its slot may use the address,
// unless it waits behind another holder. While the entry is an intent, its interface is down: a
// frame with its MAC comes from another host.
func (ls *Leases) Install(e *attachment.Entry, address attachment.Address) error {
	mac, err := net.ParseMAC(e.MAC)
	if err != nil {
		return fmt.Errorf("recorded MAC: %w", err)
	}
	l := ls.leaseOf(e, address)
	l.MAC = mac
	return ls.put(key(e, address), l)
}

// leaseOf returns the lease of an address of an entry, without its MAC.
func (ls *Leases) leaseOf(e *attachment.Entry, address attachment.Address) bpf.Lease {
	l := bpf.Lease{
		Token: address.Token, Network: claim.Network(ls.cluster, address.Network), Slot: e.Slot,
		Disproved: address.Disproved, Behind: address.Behind,
	}
	copy(l.DisprovedBefore[:], address.DisprovedBefore)
	if address.Unproven || address.Waits {
		l.Flags |= bpf.FlagUnproven
	}
	if e.SharedMAC {
		l.Flags |= bpf.FlagSharedMAC
	}
	if e.Phase == attachment.Intent {
		l.Flags |= bpf.FlagDown
	}
	l.Flags |= ls.acks(e, false)
	return l
}

func (ls *Leases) put(key bpf.Key, l bpf.Lease) error {
	ls.installing.Lock()
	defer ls.installing.Unlock()
	if err := ls.kernel.Install(key, l); err != nil {
		return fmt.Errorf("install the lease of %s: %w", key, err)
	}
	return nil
}

// ackFlags are the flags of a lease that say who acknowledges claims for its address.
const ackFlags = bpf.FlagUnguarded | bpf.FlagVF

// acks returns the ackFlags of an entry's leases. off: its PF shows that the VF is off.
func (ls *Leases) acks(e *attachment.Entry, off bool) (flags bpf.LeaseFlags) {
	alone := ls.alone(e)
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

// SetHolderSilent tells the kernel whether the VF of an entry is off at its PF. If only the PF can silence the
// holder, the kernel acknowledges claims for its addresses only while the VF is off.
func (ls *Leases) SetHolderSilent(e *attachment.Entry, off bool) error {
	flags := ls.acks(e, off)
	ls.installing.Lock()
	defer ls.installing.Unlock()
	for _, address := range e.Addresses {
		key := key(e, address)
		l, installed, err := ls.kernel.Lease(key)
		if err != nil {
			return err
		}
		if !installed || l.Slot != e.Slot || l.Flags&ackFlags == flags {
			continue
		}
		l.Flags = l.Flags&^ackFlags | flags
		if err := ls.kernel.Install(key, l); err != nil {
			return fmt.Errorf("tell the kernel about the holder of %s: %w", key, err)
		}
	}
	return nil
}

// Uninstall removes an address on a parent from the kernel, if it still belongs to this slot.
func (ls *Leases) Uninstall(parent int, addr netip.Addr, slot uint32) error {
	key := bpf.Key{Segment: uint32(parent), Addr: addr}
	ls.installing.Lock()
	defer ls.installing.Unlock()
	present, installed, err := ls.kernel.Lease(key)
	if err != nil || !installed || present.Slot != slot {
		return err
	}
	if present.Flags&bpf.FlagTurns != 0 { // the other pods wait for their turn
		return ls.kernel.Install(key, nobodysTurn(present.Token))
	}
	if err := ls.kernel.Remove(key); err != nil {
		return fmt.Errorf("remove the lease of %s and slot %d: %w", key, slot, err)
	}
	return nil
}

// Fenced reports whether a newer claim was heard for an address of an entry.
func (ls *Leases) Fenced(e *attachment.Entry, address attachment.Address) (bool, error) {
	if address.Waits { // fenced without a claim
		claimed, err := ls.Claimed(e, address)
		return claimed > address.Token, err
	}
	fenced, err := ls.kernel.Fenced(key(e, address))
	if err != nil {
		return false, fmt.Errorf("check whether %s is fenced: %w", address.Addr, err)
	}
	return fenced, nil
}

// Of returns the lease that the kernel enforces for an address of an entry. ok is false if there is none.
func (ls *Leases) Of(e *attachment.Entry, address attachment.Address) (l bpf.Lease, ok bool, err error) {
	if l, ok, err = ls.kernel.Lease(key(e, address)); err != nil {
		err = fmt.Errorf("read the kernel's lease of %s: %w", address.Addr, err)
	}
	return l, ok, err
}

// Claimed returns the greatest token of a claim that was heard for an address of an entry, or 0.
func (ls *Leases) Claimed(e *attachment.Entry, address attachment.Address) (uint64, error) {
	s, _, err := ls.kernel.State(key(e, address))
	if err != nil {
		return 0, fmt.Errorf("read the greatest claim for %s: %w", address.Addr, err)
	}
	return s.MaxToken, nil
}

// All returns the leases that the kernel enforces.
func (ls *Leases) All() (map[bpf.Key]bpf.Lease, error) {
	leases, err := ls.kernel.All()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's leases: %w", err)
	}
	return leases, nil
}

// MaySpeak reports whether a slot of this node may use an address, on any segment.
func (ls *Leases) MaySpeak(addr netip.Addr) (bool, error) {
	leases, err := ls.All()
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
