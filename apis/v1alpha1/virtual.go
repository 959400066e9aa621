// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"net"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
)

// IsForNobody reports whether no pod may use the addresses.
func (r *ReservedIP) IsForNobody() bool { return r.Spec.For == nil && r.Spec.Virtual == nil }

// VirtualsOf returns the virtual addresses for which a pod may speak from an interface with addresses of these
// pools, and the reservation of each, which is read-only. It leaves out a reservation that the controller has not looked
// at yet, and one with an address that a pod still holds, or that a second reservation has too.
func VirtualsOf(reservations []ReservedIP, namespace string, labels map[string]string, pools []*IPPool) (by map[netip.Addr]*ReservedIP) {
	by = map[netip.Addr]*ReservedIP{}
	for i := range reservations {
		r := &reservations[i]
		isTaken := r.Status.ObservedGeneration == 0 || r.Status.InUse > 0 || meta.IsStatusConditionTrue(r.Status.Conditions, ConditionContested)
		if r.Spec.Virtual == nil || isTaken || !r.Spec.Virtual.Selects(namespace, labels) {
			continue
		}
		for _, text := range r.Spec.IPs {
			addr, err := netip.ParseAddr(text)
			if err == nil && slices.ContainsFunc(pools, func(p *IPPool) bool { return p.Reaches(r.Spec.Network, addr) }) {
				by[addr] = r
			}
		}
	}
	return by
}

// Selects reports whether a pod may speak for the addresses.
func (v *ReservedVirtual) Selects(namespace string, labels map[string]string) bool {
	for key, value := range v.MatchLabels {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return v.Namespace == namespace && len(v.MatchLabels) > 0
}

// Reaches reports whether the hosts of an address of a network share the subnet of the pool.
func (p *IPPool) Reaches(network string, addr netip.Addr) bool {
	subnet, err := netip.ParsePrefix(p.Spec.Subnet)
	return err == nil && p.Spec.Network == network && subnet.Contains(addr)
}

// MAC returns the MAC of VRRP (RFC 9568 section 7.3) for an address, nil without vrrpID.
func (v *ReservedVirtual) MAC(addr netip.Addr) net.HardwareAddr {
	if v.VRRPID == nil {
		return nil
	}
	mac := net.HardwareAddr{0, 0, 0x5e, 0, 1, byte(*v.VRRPID)}
	if addr.Is6() {
		mac[4] = 2
	}
	return mac
}
