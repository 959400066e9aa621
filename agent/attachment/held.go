// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"iter"
	"net"
	"net/netip"
	"slices"
	"time"
)

// place is an address on a parent.
type place struct {
	parent int
	addr   netip.Addr
}

// Bound yields the entries whose interfaces hold addresses now, oldest first. They are read-only.
func (t *Table) Bound() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, e := range t.All() {
			if t.isBound(e) && !yield(e) {
				return
			}
		}
	}
}

func (t *Table) isBound(e *Entry) bool { return e.Phase == Bound && e.Session == t.session }

// Moved returns the number of addresses that have moved here from older sandboxes, and whose leases do not
// record that yet, and the time of the first such move.
func Moved(t *Table) (n int, first time.Time) {
	for e := range t.Bound() {
		for _, a := range e.Addresses {
			if a.Moved.IsZero() {
				continue
			}
			if n++; n == 1 || a.Moved.Before(first) {
				first = a.Moved
			}
		}
	}
	return n, first
}

// Holder returns the oldest entry that holds an address on the parent with this ifindex, if there is one.
// The caller must not change its Addresses in place.
func (t *Table) Holder(parent int, addr netip.Addr) (Entry, Address, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, e := range t.at[place{parent, addr}] {
		if t.isBound(e) {
			i := slices.IndexFunc(e.Addresses, func(a Address) bool { return a.Addr == addr })
			return *e, e.Addresses[i], true
		}
	}
	return Entry{}, Address{}, false
}

// MAC returns the MAC of the pod of this node that holds an address on a parent, if there is one.
func (t *Table) MAC(parent int, addr netip.Addr) (net.HardwareAddr, bool) {
	e, _, held := t.Holder(parent, addr)
	if !held {
		return nil, false
	}
	mac, err := net.ParseMAC(e.MAC)
	return mac, err == nil
}
