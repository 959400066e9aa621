// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"errors"
	"fmt"
	"net"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/bpf"
)

// Pods speak for an exclusive virtual address by turns. From the time at which a pod of this node may take the
// turn, the kernel has an entry for the address: the lease of the pod that has the turn, or nobody's.

// HoldBack lets no slot use an address until it gets the turn.
func (ls *Leases) HoldBack(key bpf.Key) error {
	if l, _, err := ls.Turn(key); err != nil || l.Flags&bpf.FlagTurns != 0 {
		return err
	}
	return ls.EndTurn(key, 0)
}

// GiveTurn lets the slot of an entry alone use an address, by a MAC of the pod, unless the address is unproven.
func (ls *Leases) GiveTurn(e *attachment.Entry, address attachment.Address, mac net.HardwareAddr) error {
	l := ls.leaseOf(e, address)
	l.MAC, l.Flags = mac, l.Flags|bpf.FlagTurns
	if mac.String() != e.MAC {
		l.Flags |= bpf.FlagSharedMAC // that of VRRP
	}
	return ls.put(key(e, address), l)
}

// Turn returns the kernel's entry of an address, and what the kernel has heard of it.
func (ls *Leases) Turn(key bpf.Key) (l bpf.Lease, heard bpf.State, err error) {
	if l, _, err = ls.kernel.Lease(key); err == nil {
		heard, _, err = ls.kernel.State(key)
	}
	if err != nil {
		err = fmt.Errorf("read whose turn it is to speak for %s: %w", key, err)
	}
	return l, heard, err
}

// EndTurn lets no slot use an address until it gets the turn. A turn with a newer token stays.
func (ls *Leases) EndTurn(key bpf.Key, token uint64) error {
	if err := ls.put(key, nobodysTurn(token)); err != nil && !errors.Is(err, bpf.ErrOlderToken) {
		return err
	}
	return nil
}

func nobodysTurn(token uint64) bpf.Lease { return bpf.Lease{Token: token, Flags: bpf.FlagTurns} }

// ForgetTurns removes the turns of addresses that are not exclusive any more, and ends those of addresses for which no
// pod of this node may speak now.
func (ls *Leases) ForgetTurns(isExclusive, maySpeak func(bpf.Key) bool) error {
	all, err := ls.All()
	if err != nil {
		return err
	}
	ls.installing.Lock()
	defer ls.installing.Unlock()
	var errs []error
	for key, l := range all {
		switch {
		case l.Flags&bpf.FlagTurns == 0:
		case !isExclusive(key):
			errs = append(errs, ls.kernel.Remove(key))
		case l.Slot != 0 && !maySpeak(key):
			errs = append(errs, ls.kernel.Install(key, nobodysTurn(l.Token)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("forget turns: %w", err)
	}
	return nil
}
