// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// State has the frames that the kernel has heard about one leased or watched address.
type State struct {
	// MaxToken is the greatest token of a valid claim, or of the holder that a standby waits for.
	// Fences compares it with the lease.
	MaxToken uint64
	// AckedToken is the greatest token that another kernel has acknowledged, AckMAC the MAC of that
	// node's parent.
	AckedToken uint64
	AckMAC     net.HardwareAddr
	// LastHit is the time at which a foreign MAC last used the address (0: never). HitMAC is that
	// MAC, HitKind is the kind of the frame, HitWhere the program that saw it, and Hits is the number
	// of such frames.
	LastHit  time.Duration
	HitMAC   net.HardwareAddr
	HitKind  Kind
	HitWhere Where
	Hits     uint64
	// LastProbe, ProbeMAC, ProbeKind, ProbeWhere and Probes are the same for tentative frames (ARP probe, DAD).
	// A probe does not use the address, and devices that track hosts probe too.
	LastProbe  time.Duration
	ProbeMAC   net.HardwareAddr
	ProbeKind  Kind
	ProbeWhere Where
	Probes     uint64
}

// Fences reports whether a lease is unproven, or the kernel has heard a claim that is newer and not
// disproved. Keep in sync with state_fences of state.h, by which the kernel drops the frames.
func (s State) Fences(l Lease) bool {
	return l.Flags&FlagUnproven != 0 || s.MaxToken > l.Token && s.MaxToken != l.Disproved
}

// State returns the state of an address, and false if it is neither leased nor watched.
func (ls *Leases) State(key Key) (State, bool, error) {
	var s observerState
	ok, err := lookup(ls.maps.States, key.layout(), &s)
	if err != nil {
		return State{}, false, fmt.Errorf("read state of %s: %w", key, err)
	}
	return s.state(), ok, nil
}

// Fenced reports whether an address is held here and fenced.
func (ls *Leases) Fenced(key Key) (bool, error) {
	l, ok, err := ls.Lease(key)
	if err != nil || !ok || !l.held() {
		return false, err
	}
	s, _, err := ls.State(key)
	return s.Fences(l), err
}

// standBehind records that a holder with this token exists, as if this kernel had heard its claim.
// It returns an older token: a lease with it is fenced. It does not change an existing state (R9):
// that state has heard a claim, so a token before that claim is older as well.
func (ls *Leases) standBehind(key Key, token uint64) (older uint64, err error) {
	if err := ls.createState(key, token); err != nil {
		return 0, err
	}
	s, _, err := ls.State(key)
	if err != nil {
		return 0, err
	}
	if s.MaxToken == 0 {
		return 0, fmt.Errorf("stand behind token %d: the address is watched, and no claim was heard: %w", token, ErrHeld)
	}
	return min(token, s.MaxToken) - 1, nil
}

// createState creates the entry of an address with claim as its greatest token, before the kernel
// records anything. If the map is full, it deletes the entries of addresses no longer leased here.
func (ls *Leases) createState(key Key, claim uint64) error {
	first := observerState{Max: claim}
	err := ls.maps.States.Update(key.layout(), first, ebpf.UpdateNoExist)
	if errors.Is(err, unix.E2BIG) {
		if err := ls.pruneStates(); err != nil {
			return err
		}
		err = ls.maps.States.Update(key.layout(), first, ebpf.UpdateNoExist)
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("create state: %w", err)
	}
	return nil
}

// forgetState deletes a state without a claim, or with a claim that is disproved.
func (ls *Leases) forgetState(key Key, disproved uint64) error {
	s, ok, err := ls.State(key)
	if err != nil || !ok || s.MaxToken != 0 && s.MaxToken != disproved {
		return err
	}
	return deleteEntry(ls.maps.States, key.layout())
}

func (ls *Leases) pruneStates() error {
	states, err := entriesOf[observerLeaseKey, observerState](ls.maps.States)
	if err != nil {
		return fmt.Errorf("list states: %w", err)
	}
	for key := range states {
		_, leased, err := ls.Lease(key.key())
		if err == nil && !leased {
			err = deleteEntry(ls.maps.States, key)
		}
		if err != nil {
			return fmt.Errorf("prune state of %s: %w", key.key(), err)
		}
	}
	return nil
}
