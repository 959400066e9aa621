// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fenceline/fenceline/bpf"
)

// memKernel is a kernel in memory that keeps the rules of package bpf: a frame
// of somebody else for an address in its leases is a hit, a newer claim fences.
type memKernel struct {
	born   time.Time
	events chan bpf.Event

	mu        sync.Mutex
	leases    map[bpf.Key]bpf.Lease
	states    map[bpf.Key]bpf.State
	observers map[int]bool
	// attachments counts how often an observer was put on a parent.
	attachments uint32
	uplinks     []string // all that was set
	deadSlots   map[uint32]bool
	heard       map[uint32]time.Duration
	counters    map[bpf.Counter]uint64
	loseEvents  bool
	// speakers are addresses of other hosts, vouched those of them that other nodes have claimed.
	speakers, vouched []netip.Addr
}

// bootAge is the machine's age when a memKernel is made, so that zero times stand out.
const bootAge = time.Hour

func newMemKernel() *memKernel {
	return &memKernel{
		born:      time.Now(),
		events:    make(chan bpf.Event, 1024),
		leases:    make(map[bpf.Key]bpf.Lease),
		states:    make(map[bpf.Key]bpf.State),
		observers: make(map[int]bool),
		deadSlots: make(map[uint32]bool),
		heard:     make(map[uint32]time.Duration),
		counters:  make(map[bpf.Counter]uint64),
	}
}

// parts returns the kernel as segments see it.
func (k *memKernel) parts() Kernel {
	return Kernel{Observers: k, Leases: k, Slots: k, Sightings: k, Events: k, Now: k.Now}
}

func (k *memKernel) Now() time.Duration { return bootAge + time.Since(k.born) }

func (k *memKernel) Attach(parent int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.observers[parent] {
		k.observers[parent] = true
		k.attachments++
	}
	return nil
}

func (k *memKernel) SetUplinks(parent int, vid uint16, uplinks []int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.uplinks = append(k.uplinks, fmt.Sprint(parent, vid, uplinks))
	return nil
}

func (k *memKernel) detachObserver(parent int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.observers, parent)
	return nil
}

func (k *memKernel) Attached() (map[int]bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make(map[int]bool)
	for parent := range k.observers {
		all[parent] = true
	}
	return all, nil
}

// Links numbers the observer by how often it was attached.
func (k *memKernel) Links(parent int) ([2]uint32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.observers[parent] {
		return [2]uint32{}, nil
	}
	return [2]uint32{k.attachments, k.attachments}, nil
}

func (k *memKernel) Install(key bpf.Key, l bpf.Lease) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	present, ok := k.leases[key]
	switch {
	case ok && present.Slot != 0 && l.Slot == 0:
		return bpf.ErrHeld
	case ok && present.Token > l.Token:
		return bpf.ErrOlderToken
	}
	k.leases[key] = l
	if _, ok := k.states[key]; !ok {
		k.states[key] = bpf.State{}
	}
	return nil
}

func (k *memKernel) RemoveWatch(key bpf.Key) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leases[key].Slot != 0 {
		return nil
	}
	delete(k.leases, key)
	if k.states[key].MaxToken == 0 {
		delete(k.states, key)
	}
	return nil
}

func (k *memKernel) Lease(key bpf.Key) (bpf.Lease, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.leases[key]
	return l, ok, nil
}

func (k *memKernel) State(key bpf.Key) (bpf.State, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.states[key]
	return s, ok, nil
}

func (k *memKernel) Fenced(key bpf.Key) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.leases[key]
	return ok && l.Slot != 0 && k.states[key].Fences(l), nil
}

func (k *memKernel) Dead(slot uint32) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.deadSlots[slot], nil
}

func (k *memKernel) Heard(segment uint32) (time.Duration, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, ok := k.heard[segment]
	return at, ok, nil
}

func (k *memKernel) Speakers(_ uint32, _ bool, limit int) ([]netip.Addr, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.speakers[:min(limit, len(k.speakers))], nil
}

func (k *memKernel) Vouched(_ uint32, _ bool, _ time.Duration, limit int) ([]netip.Addr, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.vouched[:min(limit, len(k.vouched))], nil
}

func (k *memKernel) Counters() (map[bpf.Counter]uint64, error) { return k.counters, nil }

func (k *memKernel) ReadEvents(ctx context.Context, fn func(bpf.Event)) error {
	for {
		select {
		case ev := <-k.events:
			fn(ev)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// speak is a frame of kind that comes in, and by which mac speaks, or asks, for key.
func (k *memKernel) speak(key bpf.Key, mac net.HardwareAddr, kind bpf.Kind) {
	k.speakAt(bpf.WhereObserverIngress, key, mac, kind)
}

func (k *memKernel) speakAt(where bpf.Where, key bpf.Key, mac net.HardwareAddr, kind bpf.Kind) {
	k.mu.Lock()
	l, ok := k.leases[key]
	if !ok || bytes.Equal(l.MAC, mac) || l.Slot != 0 && l.Flags&bpf.FlagUnproven == 0 && k.states[key].Fences(l) {
		k.mu.Unlock()
		return
	}
	now, st := k.Now(), k.states[key]
	if kind.Tentative() {
		st.LastProbe, st.ProbeMAC, st.ProbeKind, st.ProbeWhere = now, mac, kind, where
		st.Probes++
	} else {
		st.LastHit, st.HitMAC, st.HitKind, st.HitWhere = now, mac, kind, where
		st.Hits++
	}
	k.states[key] = st
	k.mu.Unlock()
	k.report(bpf.Event{Type: bpf.EventHit, Key: key, MAC: mac, Kind: kind, At: now, Where: where})
}

// ack is an authenticated ack for token on network, from the parent mac of another node.
func (k *memKernel) ack(key bpf.Key, network, token uint64, mac net.HardwareAddr) {
	k.mu.Lock()
	st := k.states[key]
	l, ok := k.leases[key]
	ok = ok && (l.Slot == 0 || l.Network == network)
	if ok && token > st.AckedToken {
		st.AckedToken, st.AckMAC = token, mac
		k.states[key] = st
	}
	k.heard[key.Segment] = k.Now()
	k.mu.Unlock()
	if ok {
		k.report(bpf.Event{Type: bpf.EventAck, Key: key, Token: token, MAC: mac, At: k.Now()})
	}
}

// claim is an authentic claim of another node.
func (k *memKernel) claim(key bpf.Key, token uint64, mac net.HardwareAddr) {
	k.mu.Lock()
	k.heard[key.Segment] = k.Now()
	l, ok := k.leases[key]
	if !ok || l.Slot == 0 {
		k.mu.Unlock()
		return
	}
	st := k.states[key]
	ev := bpf.Event{Type: bpf.EventOldClaim, Key: key, Token: token, Mine: l.Token, MAC: mac, At: k.Now()}
	if token > l.Token && token > st.MaxToken {
		st.MaxToken = token
		k.states[key] = st
		ev.Type = bpf.EventFenced
	}
	k.mu.Unlock()
	k.report(ev)
}

func (k *memKernel) report(ev bpf.Event) {
	k.mu.Lock()
	lose := k.loseEvents
	k.mu.Unlock()
	if !lose {
		k.events <- ev
	}
}
