package bpf

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// State is what the kernel has learnt from the wire about one leased or watched address.
type State struct {
	// MaxToken is the greatest token that a valid claim carried; the address is fenced while it exceeds the lease's.
	MaxToken uint64
	// AckedToken is the greatest token another kernel has acknowledged, AckMAC the parent it answered from.
	AckedToken uint64
	AckMAC     net.HardwareAddr
	// LastHit is when somebody else last spoke for the address (0: never), HitMAC who, HitKind how, Hits how often.
	LastHit time.Duration
	HitMAC  net.HardwareAddr
	HitKind Kind
	Hits    uint64
	// LastProbe, ProbeMAC, ProbeKind and Probes say the same of tentative frames (ARP probe, DAD): asking for an
	// address is not speaking for it, and a device that tracks hosts probes too.
	LastProbe time.Duration
	ProbeMAC  net.HardwareAddr
	ProbeKind Kind
	Probes    uint64
}

// State returns what the kernel knows of an address, and whether it follows it at all.
func (k *Kernel) State(key Key) (State, bool, error) {
	var s observerState
	ok, err := lookup(k.maps.States, key.layout(), &s)
	if err != nil {
		return State{}, false, fmt.Errorf("read state of %s: %w", key, err)
	}
	return s.state(), ok, nil
}

// Fenced reports whether a claim newer than the lease was heard. An address that nobody holds here is not fenced.
func (k *Kernel) Fenced(key Key) (bool, error) {
	l, ok, err := k.Lease(key)
	if err != nil || !ok || !l.held() {
		return false, err
	}
	s, _, err := k.State(key)
	return s.MaxToken > l.Token, err
}

// createState makes room for the wire's word on an address before anybody can say it. When the map is full, the
// memory of addresses that nobody leases here any more gives way.
func (k *Kernel) createState(key Key) error {
	err := k.maps.States.Update(key.layout(), observerState{}, ebpf.UpdateNoExist)
	if errors.Is(err, unix.E2BIG) {
		if err := k.pruneStates(); err != nil {
			return err
		}
		err = k.maps.States.Update(key.layout(), observerState{}, ebpf.UpdateNoExist)
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("create state: %w", err)
	}
	return nil
}

// forgetState removes a state that holds no claim.
func (k *Kernel) forgetState(key Key) error {
	s, ok, err := k.State(key)
	if err != nil || !ok || s.MaxToken != 0 {
		return err
	}
	return k.deleteState(key)
}

func (k *Kernel) deleteState(key Key) error {
	err := k.maps.States.Delete(key.layout())
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

func (k *Kernel) pruneStates() error {
	var orphans []Key
	var key observerLeaseKey
	var s observerState
	it := k.maps.States.Iterate()
	for it.Next(&key, &s) {
		_, leased, err := k.Lease(key.key())
		if err != nil {
			return err
		}
		if !leased {
			orphans = append(orphans, key.key())
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("list states: %w", err)
	}
	for _, key := range orphans {
		if err := k.deleteState(key); err != nil {
			return fmt.Errorf("prune state of %s: %w", key, err)
		}
	}
	return nil
}
