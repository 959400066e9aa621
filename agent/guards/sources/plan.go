// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

// modes has the mode of the kernel for each mode of pools.
var modes = map[v1alpha1.SourceGuardMode]bpf.SourceMode{
	v1alpha1.SourceGuardEnforce: bpf.SourcesEnforce,
	v1alpha1.SourceGuardObserve: bpf.SourcesObserve,
	v1alpha1.SourceGuardOff:     bpf.SourcesOff,
}

// allowances are the frames that the kernel allows for each role.
var allowances = map[v1alpha1.SourceGuardRole]bpf.Allowances{
	v1alpha1.RoleRouter:     bpf.AllowRouter,
	v1alpha1.RoleDHCPServer: bpf.AllowDHCPServer,
	v1alpha1.RoleTagged:     bpf.AllowTagged,
	v1alpha1.RoleBridge:     bpf.AllowBridge,
}

// Plan returns the sources that the interface of an entry may use. pools are those of its
// addresses, local are the link-local addresses that the kernel gave the interface. With several
// pools the strictest mode counts, and the pod may send what any of the pools allows, and use the virtual addresses.
func Plan(e *attachment.Entry, pools []*v1alpha1.IPPool, local []netip.Addr, virtuals map[netip.Addr]*v1alpha1.ReservedIP) (bpf.Sources, error) {
	mac, err := net.ParseMAC(e.MAC)
	if err != nil {
		return bpf.Sources{}, fmt.Errorf("recorded MAC: %w", err)
	}
	s := bpf.Sources{MAC: mac, SharedMAC: e.SharedMAC}
	for _, addr := range append(local, linkLocal(mac)) {
		s.Prefixes = append(s.Prefixes, netip.PrefixFrom(addr, addr.BitLen()))
	}
	for _, pool := range pools {
		s.Mode = max(s.Mode, modes[pool.SourceGuardMode()])
		if err := allow(&s, pool); err != nil {
			return bpf.Sources{}, err
		}
	}
	for addr, r := range virtuals {
		s.Prefixes = append(s.Prefixes, netip.PrefixFrom(addr, addr.BitLen()))
		if mac := r.Spec.Virtual.MAC(addr); mac != nil {
			s.MACs, s.Allow = append(s.MACs, mac), s.Allow|bpf.AllowVRRP
			if r.Spec.Virtual.Exclusive {
				local := linkLocal(mac)
				s.Prefixes, s.Allow = append(s.Prefixes, netip.PrefixFrom(local, local.BitLen())), s.Allow|bpf.AllowTurns
			}
		}
	}
	if s.Mode == bpf.SourcesOff {
		return bpf.Sources{MAC: mac}, nil
	}
	tidy(&s)
	return s, nil
}

// tidy sorts the lists of sources, and removes doubles.
func tidy(s *bpf.Sources) {
	slices.SortFunc(s.Prefixes, netip.Prefix.Compare)
	s.Prefixes = slices.Compact(s.Prefixes)
	slices.SortFunc(s.MACs, slices.Compare)
	s.MACs = slices.CompactFunc(s.MACs, slices.Equal)
}

// allow adds what a pool allows.
func allow(s *bpf.Sources, pool *v1alpha1.IPPool) error {
	a := pool.Spec.SourceGuardAllow
	if a == nil {
		return nil
	}
	for _, text := range a.CIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("pool %s: spec.sourceGuardAllow.cidrs: %w", pool.Name, err)
		}
		s.Prefixes = append(s.Prefixes, p.Masked())
	}
	for _, text := range a.MACs {
		mac, err := net.ParseMAC(text)
		if err != nil {
			return fmt.Errorf("pool %s: spec.sourceGuardAllow.macs: %w", pool.Name, err)
		}
		s.MACs = append(s.MACs, mac)
	}
	for _, role := range a.Roles {
		s.Allow |= allowances[role]
	}
	return nil
}

// transmitDirectly reports whether the pool of each address of an interface allows sockets that skip its
// guard. A pool that is gone allows nothing.
func transmitDirectly(pools []*v1alpha1.IPPool, addresses int) bool {
	return len(pools) == addresses && !slices.ContainsFunc(pools, func(p *v1alpha1.IPPool) bool { return !p.AllowsDirectTransmit() })
}

// linkLocal returns the link-local address that a kernel makes of a MAC (RFC 4291 appendix A). Its
// DAD begins before the agent can read it from the interface.
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	})
}

// mayAutoconfigure reports whether a pod may use the addresses that its kernel makes of router
// advertisements: its guard does not enforce, or a pool allows the subnet of such an address.
func mayAutoconfigure(s bpf.Sources) bool {
	return s.Mode != bpf.SourcesEnforce || slices.ContainsFunc(s.Prefixes, func(p netip.Prefix) bool {
		return p.Addr().Is6() && p.Bits() <= 64
	})
}
