// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"
)

// Key identifies a lease in the kernel: an address on one segment. The same address on an
// unconnected parent is another key.
type Key struct {
	// Segment is the ifindex of the parent.
	Segment uint32
	// Addr is an IPv4 or IPv6 address without zone.
	Addr netip.Addr
}

func (k Key) String() string { return fmt.Sprintf("%s on segment %d", k.Addr, k.Segment) }

// Lease is the kernel's part of a lease: the slot that may use the address, and the token.
type Lease struct {
	// Token is the fencing token. Claims with a greater one fence the address.
	Token uint64
	// Network is the number of the address's network. Claims of other networks do not matter.
	Network uint64
	// Slot is the slot of the holder's guard; 0 means watched, not held here.
	Slot uint32
	// MAC is the holder's, 6 bytes. It is empty for a watched address: every speaker is a hit.
	MAC net.HardwareAddr
	// Flags change the checks.
	Flags LeaseFlags
	// Disproved is the token of a claim that fences nothing: a renewal found no speaker. 0: none.
	Disproved uint64
	// DisprovedBefore are the tokens that earlier renewals of the address disproved, the latest first.
	DisprovedBefore [DisprovedBefore]uint64
	// Behind is the token of the holder on another node for which the slot waits. Such a lease is
	// fenced from the start, and Install chooses its Token. 0: the slot waits for nobody.
	// Lease and All do not return it.
	Behind uint64
}

// DisprovedBefore is the number of tokens that the kernel ignores besides the last disproved one.
const DisprovedBefore = len(observerLease{}.DisprovedBefore)

// LeaseFlags change how the kernel treats a lease.
type LeaseFlags uint32

// The flags of a lease.
const (
	// FlagSharedMAC: a holder of the address on another node may have the same MAC. The address may be
	// fenced here and in use there, so frames from it reach the other pods of this node.
	FlagSharedMAC = LeaseFlags(observerLeaseFlagLEASE_SHARED_MAC)
	// FlagDown: the holder's interface is down, so each frame from the address is another host's.
	FlagDown = LeaseFlags(observerLeaseFlagLEASE_DOWN)
	// FlagUnproven: the address is fenced, whatever was claimed, until it is proven that nobody else
	// uses it. Frames of another speaker are hits.
	FlagUnproven = LeaseFlags(observerLeaseFlagLEASE_UNPROVEN)
	// FlagUnguarded: nothing enforces a fence of the address. A claim for it is an event, and gets no ack.
	FlagUnguarded = LeaseFlags(observerLeaseFlagLEASE_UNGUARDED)
	// FlagVF: the holder is a VF, whose frames no observer sees. Only its guard acks claims for the address.
	FlagVF = LeaseFlags(observerLeaseFlagLEASE_VF)
	// FlagTurns: the pods whose Sources allow the address speak for it by turns. Only the slot may use it now; 0:
	// none. The announcement of another pod is an EventTurn.
	FlagTurns = LeaseFlags(observerLeaseFlagLEASE_TURNS)
)

var (
	// ErrOlderToken is returned by Install if the present lease has a greater token.
	ErrOlderToken = errors.New("a lease with a newer token is installed")
	// ErrHeld is returned by Install if a watch (slot 0) would replace a held lease, or the target of a migration
	// the lease of a living slot or a watch.
	ErrHeld = errors.New("the address is held here")
)

func (l Lease) held() bool { return l.Slot != 0 }

func (l Lease) check() error {
	if l.Slot > MaxSlot {
		return fmt.Errorf("slot %d: %w", l.Slot, ErrSlot)
	}
	if n := len(l.MAC); n != 6 && (l.held() || n != 0) {
		return fmt.Errorf("MAC %q has %d bytes, need 6", l.MAC, n)
	}
	return nil
}

// succeeds returns an error if l may not replace the present lease. It is the part of R9 in user
// space: no older token replaces a lease, and no watch a holder, since that would end its fence.
// The same token may be installed again, after a restart or when a Warm lease becomes Bound. A watch
// with FlagTurns ends a turn: it lets no pod use the address either.
func (l Lease) succeeds(present Lease) error {
	if !l.held() && present.held() && l.Flags&FlagTurns == 0 {
		return fmt.Errorf("slot %d: %w", present.Slot, ErrHeld)
	}
	if l.Token < present.Token {
		return fmt.Errorf("token %d, present %d: %w", l.Token, present.Token, ErrOlderToken)
	}
	return nil
}

// Leases are the leases and watches in the kernel's maps, with their states. Only the kernel changes a state.
type Leases struct {
	mu       *sync.Mutex
	maps     *observerMaps
	slots    *Slots
	gate     *gate
	networks *networks
}

// Install writes a lease into the kernel's map and replaces an older one. It creates the state
// first and never resets it: an earlier claim keeps the address fenced unless l is newer.
//
// If l may not replace the present lease, it returns ErrOlderToken or ErrHeld and changes nothing. If
// the kernel cannot obey claims of its network, it returns ErrNetworksFull.
func (ls *Leases) Install(key Key, l Lease) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if err := ls.installLease(key, l); err != nil {
		return fmt.Errorf("install lease of %s: %w", key, err)
	}
	return nil
}

func (ls *Leases) installLease(key Key, l Lease) error {
	if !key.Addr.IsValid() || key.Addr.Zone() != "" {
		return fmt.Errorf("address %q cannot be leased: invalid or with a zone", key.Addr)
	}
	if err := l.check(); err != nil {
		return err
	}
	present, ok, err := ls.Lease(key)
	if err != nil {
		return err
	}
	if l.Behind != 0 {
		if ok && present.Slot != l.Slot {
			if err := ls.givesWay(present); err != nil {
				return err
			}
		}
		if l.Token, err = ls.standBehind(key, l.Behind); err != nil {
			return err
		}
	}
	if ok {
		if err := l.succeeds(present); err != nil {
			return err
		}
	}
	// A lease whose network is unknown could not be fenced. A watch has no network.
	if l.held() {
		if err := ls.networks.add(l.Network); err != nil {
			return err
		}
	}
	if err := ls.createState(key, 0); err != nil {
		return err
	}
	if err := ls.openGateIfClaimed(key, l); err != nil {
		return err
	}
	if present.Slot != l.Slot {
		if err := ls.unnameLeased(key, present.Slot); err != nil {
			return err
		}
	}
	if err := ls.maps.Leases.Put(key.layout(), l.layout()); err != nil {
		return fmt.Errorf("write lease: %w", err)
	}
	if err := ls.nameLeased(key, l.Slot); err != nil {
		return err
	}
	return ls.gate.settle()
}

// givesWay returns an error unless a target may stand behind in place of the present lease. It may after an
// earlier holder of this node whose slot is dead: the machine came back before that lease was removed.
func (ls *Leases) givesWay(present Lease) error {
	dead := false
	if present.held() {
		var err error
		if dead, err = ls.slots.Dead(present.Slot); err != nil {
			return err
		}
	}
	if !dead {
		return fmt.Errorf("slot %d: %w", present.Slot, ErrHeld)
	}
	return nil
}

// openGateIfClaimed opens the gate before the installation of a lease for which the kernel has
// already heard a newer claim: such a lease is fenced at once.
func (ls *Leases) openGateIfClaimed(key Key, l Lease) error {
	s, _, err := ls.State(key)
	if err != nil || !l.held() || !s.Fences(l) {
		return err
	}
	return ls.gate.open()
}

// RemoveWatch removes a watch. It does nothing if the address is held or not watched, or nobody's turn.
func (ls *Leases) RemoveWatch(key Key) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	present, ok, err := ls.Lease(key)
	if err != nil || !ok || present.Slot != 0 || present.Flags&FlagTurns != 0 {
		return err
	}
	return ls.removeLease(key)
}

// Remove removes a lease or a watch. A missing one is no error. It removes the state too,
// unless the kernel has heard a claim that is not disproved: the remembered claim fences a stale lease
// that is installed again.
func (ls *Leases) Remove(key Key) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.removeLease(key)
}

func (ls *Leases) removeLease(key Key) error {
	if err := ls.forgetOwnSighting(key); err != nil {
		return err
	}
	present, _, err := ls.Lease(key)
	if err != nil {
		return err
	}
	if err := ls.unnameLeased(key, present.Slot); err != nil {
		return err
	}
	if err := deleteEntry(ls.maps.Leases, key.layout()); err != nil {
		return fmt.Errorf("remove lease of %s: %w", key, err)
	}
	if err := ls.forgetState(key, present.Disproved); err != nil {
		return fmt.Errorf("remove state of %s: %w", key, err)
	}
	return ls.gate.settle()
}

// forgetOwnSighting removes the sighting of the holder here when its lease ends. A later holder on
// another node may have the same MAC, and would pass for a speaker that this segment has heard.
func (ls *Leases) forgetOwnSighting(key Key) error {
	l, ok, err := ls.Lease(key)
	if err != nil || !ok || !l.held() || l.Flags&FlagDown != 0 {
		return err
	}
	var s observerSighting
	ok, err = lookup(ls.maps.Sightings, key.layout(), &s)
	if err != nil || !ok || !bytes.Equal(s.sighting().MAC, l.MAC) {
		return err
	}
	if err := deleteEntry(ls.maps.Sightings, key.layout()); err != nil {
		return fmt.Errorf("forget the sighting of %s: %w", key, err)
	}
	return nil
}

// Lease returns the installed lease or watch; ok is false if there is none.
func (ls *Leases) Lease(key Key) (Lease, bool, error) {
	var l observerLease
	ok, err := lookup(ls.maps.Leases, key.layout(), &l)
	if err != nil {
		return Lease{}, false, fmt.Errorf("read lease of %s: %w", key, err)
	}
	return l.lease(), ok, nil
}

// All returns all installed leases and watches. Concurrent changes may be missing.
func (ls *Leases) All() (map[Key]Lease, error) {
	all, err := entriesOf[observerLeaseKey, observerLease](ls.maps.Leases)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	leases := make(map[Key]Lease, len(all))
	for key, l := range all {
		leases[key.key()] = l.lease()
	}
	return leases, nil
}

// lookup reads one entry; ok is false if there is none.
func lookup(m *ebpf.Map, key, value any) (ok bool, err error) {
	err = m.Lookup(key, value)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, nil
	}
	return err == nil, err
}

// entriesOf returns the entries of a map. Concurrent changes may be missing. With an error it returns those
// that it has read before.
func entriesOf[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	all := map[K]V{}
	var key K
	var value V
	it := m.Iterate()
	for it.Next(&key, &value) {
		all[key] = value
	}
	return all, it.Err()
}

// deleteEntry deletes one entry. A missing one is no error.
func deleteEntry(m *ebpf.Map, key any) error {
	if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}
