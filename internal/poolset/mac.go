// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"encoding/binary"
	"net/netip"

	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// SameMAC returns another address on the segment to which spec.macPolicy gives the MAC of an IPv6
// address of a pool, and the name of its pool. ok is false if there is none. It looks at all pools
// with the prefix, network and VLAN of the pool. An IPv4 address is the first address of its
// interface, and no other one has its four octets, so it is always allowed.
func SameMAC(pool *v1alpha1.IPPool, addr netip.Addr, pools []v1alpha1.IPPool) (other netip.Addr, owner string, ok bool) {
	if addr.Is4() || !isFromIP(pool) {
		return netip.Addr{}, "", false
	}
	for i := range pools {
		p := &pools[i]
		if !isFromIP(p) || p.Spec.MACPolicy.Prefix != pool.Spec.MACPolicy.Prefix ||
			p.Spec.Network != pool.Spec.Network || ptr.Deref(p.Spec.Vlan, 0) != ptr.Deref(pool.Spec.Vlan, 0) {
			continue
		}
		all, err := Addresses(p)
		if err != nil {
			continue // such a pool hands nothing out
		}
		for _, sp := range all.spans {
			if other, ok := sp.withEnd(addr); ok {
				return other, p.Name, true
			}
		}
	}
	return netip.Addr{}, "", false
}

func isFromIP(p *v1alpha1.IPPool) bool {
	return p.Spec.MACPolicy != nil && p.Spec.MACPolicy.Type == v1alpha1.MACFromIP
}

// withEnd returns the first address of a span, other than addr, that has the last four octets of addr.
func (sp span) withEnd(addr netip.Addr) (netip.Addr, bool) {
	const around = 1 << 32
	end := uint64(lastFour(addr))
	found := advance(sp.from, (end+around-uint64(lastFour(sp.from)))%around)
	if found == addr {
		found = advance(found, around)
	}
	return found, found.Compare(sp.from) >= 0 && found.Compare(sp.to) <= 0 && found != addr
}

func lastFour(a netip.Addr) uint32 {
	octets := a.AsSlice()
	return binary.BigEndian.Uint32(octets[len(octets)-4:])
}
