package bpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
)

// Key names a lease in the kernel: an address on one segment. Equal addresses on unconnected parents are apart.
type Key struct {
	// Segment is the ifindex of the parent.
	Segment uint32
	// Addr is an IPv4 or IPv6 address without zone.
	Addr netip.Addr
}

func (k Key) String() string { return fmt.Sprintf("%s on segment %d", k.Addr, k.Segment) }

// Lease is what the kernel has to know of a lease: who may speak for its address, and since which token.
type Lease struct {
	// Token is the fencing token. Claims with a greater one fence the address.
	Token uint64
	// Network is the cluster-wide network the address belongs to; claims of another network do not concern it.
	Network uint64
	// Slot is the guard that may speak for the address; 0 means watched, not held here.
	Slot uint32
	// MAC is the holder's, 6 bytes; empty for a watched address, so that every speaker is a hit.
	MAC net.HardwareAddr
	// Flags refine the checks.
	Flags LeaseFlags
}

// LeaseFlags refine how the kernel treats a lease.
type LeaseFlags uint32

// FlagSharedMAC says that old and new holder share one MAC, so a MAC tells nobody apart. Keep in sync with lease.h.
const FlagSharedMAC LeaseFlags = 1 << 0

func (l Lease) held() bool { return l.Slot != 0 }

func (l Lease) check() error {
	if l.Slot > MaxSlot {
		return fmt.Errorf("slot %d: %w", l.Slot, ErrSlot)
	}
	if n := len(l.MAC); n != 6 && (l.held() || n != 0) {
		return fmt.Errorf("MAC %s of %d bytes", l.MAC, n)
	}
	return nil
}

// succeeds is R9's share in user space: only a newer token replaces a lease, and a watch never replaces a holder,
// whose fence would go with it. The same token may be installed again, after a restart or when Warm becomes Bound.
func (l Lease) succeeds(present Lease) error {
	if !l.held() && present.held() {
		return fmt.Errorf("slot %d: %w", present.Slot, ErrHeld)
	}
	if l.Token < present.Token {
		return fmt.Errorf("token %d, present %d: %w", l.Token, present.Token, ErrOlderToken)
	}
	return nil
}

// InstallLease makes a lease known to the kernel, in place of an older one. Its state is created first and never
// reset, so a claim heard before keeps the address fenced unless l is newer.
//
// It returns ErrOlderToken or ErrHeld, and changes nothing, when l may not replace the present lease.
func (k *Kernel) InstallLease(key Key, l Lease) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.installLease(key, l); err != nil {
		return fmt.Errorf("install lease of %s: %w", key, err)
	}
	return nil
}

func (k *Kernel) installLease(key Key, l Lease) error {
	if !key.Addr.IsValid() || key.Addr.Zone() != "" {
		return fmt.Errorf("address %q is not one that can be leased", key.Addr)
	}
	if err := l.check(); err != nil {
		return err
	}
	present, ok, err := k.Lease(key)
	if err != nil {
		return err
	}
	if ok {
		if err := l.succeeds(present); err != nil {
			return err
		}
	}
	if err := k.createState(key); err != nil {
		return err
	}
	if err := k.openGateIfClaimed(key, l); err != nil {
		return err
	}
	if err := k.maps.Leases.Put(key.layout(), l.layout()); err != nil {
		return fmt.Errorf("write lease: %w", err)
	}
	return k.settle()
}

// RemoveWatch ends a watch. An address that is leased by now, or not watched, stays as it is.
func (k *Kernel) RemoveWatch(key Key) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	present, ok, err := k.Lease(key)
	if err != nil || !ok || present.Slot != 0 {
		return err
	}
	return k.removeLease(key)
}

// RemoveLease forgets a lease or a watch; one that is not there is no error. The state goes with it unless a claim
// was heard: that memory keeps a stale lease from coming back unfenced.
func (k *Kernel) RemoveLease(key Key) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.removeLease(key)
}

func (k *Kernel) removeLease(key Key) error {
	err := k.maps.Leases.Delete(key.layout())
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove lease of %s: %w", key, err)
	}
	if err := k.forgetState(key); err != nil {
		return fmt.Errorf("remove state of %s: %w", key, err)
	}
	return k.settle()
}

// Lease returns the installed lease, and whether there is one.
func (k *Kernel) Lease(key Key) (Lease, bool, error) {
	var l observerLease
	ok, err := lookup(k.maps.Leases, key.layout(), &l)
	if err != nil {
		return Lease{}, false, fmt.Errorf("read lease of %s: %w", key, err)
	}
	return l.lease(), ok, nil
}

// Leases returns all installed leases and watches. What changes meanwhile may be missing.
func (k *Kernel) Leases() (map[Key]Lease, error) {
	leases := map[Key]Lease{}
	var key observerLeaseKey
	var l observerLease
	it := k.maps.Leases.Iterate()
	for it.Next(&key, &l) {
		leases[key.key()] = l.lease()
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	return leases, nil
}

// lookup reads one entry; ok is false when there is none.
func lookup(m *ebpf.Map, key, value any) (ok bool, err error) {
	err = m.Lookup(key, value)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return false, nil
	}
	return err == nil, err
}
