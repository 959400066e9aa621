// SPDX-License-Identifier: Apache-2.0

package node

import (
	"iter"
	"net"
	"net/netip"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/bpf"
)

// Held are the addresses that pods of this node hold now, by the journal.
type Held struct {
	entries func() []*attachment.Entry
	session string
}

// NewHeld returns the addresses that the entries of a journal hold in the present life of the node.
func NewHeld(entries func() []*attachment.Entry, session string) Held { return Held{entries, session} }

// Bound yields the entries whose interfaces hold addresses now. They are read-only.
func (h Held) Bound() iter.Seq[*attachment.Entry] {
	return func(yield func(*attachment.Entry) bool) {
		for _, e := range h.entries() {
			if e.Phase == attachment.Bound && e.Session == h.session && !yield(e) {
				return
			}
		}
	}
}

// Holder returns the entry that holds an address on this node, if there is one.
func (h Held) Holder(key bpf.Key) (attachment.Entry, attachment.Address, bool) {
	for e := range h.Bound() {
		for _, address := range e.Addresses {
			if guards.Key(e, address) == key {
				return *e, address, true
			}
		}
	}
	return attachment.Entry{}, attachment.Address{}, false
}

// MAC returns the MAC of the pod of this node that holds an address on a parent, if there is one.
func (h Held) MAC(parent int, addr netip.Addr) (net.HardwareAddr, bool) {
	e, _, held := h.Holder(bpf.Key{Segment: uint32(parent), Addr: addr})
	if !held {
		return nil, false
	}
	mac, err := net.ParseMAC(e.MAC)
	return mac, err == nil
}
