package allocate

import (
	"net/netip"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// keep makes leases of a pod of the same name the interface's own. It asks for
// no other address.
func (a *ask) keep(leases []*v1alpha1.IPLease) {
	a.kept, a.IPs = leases, nil
	for _, l := range leases {
		a.Kept = append(a.Kept, ipam.Kept{Addr: netip.MustParseAddr(l.Spec.Address), Pool: l.Spec.Pool})
	}
}

// keptOf returns the lease of a family that is kept for the interface, or nil.
func (a *ask) keptOf(f ipam.Family) (l *v1alpha1.IPLease, ok bool, err error) {
	for _, l := range a.kept {
		if netip.MustParseAddr(l.Spec.Address).Is6() != f.IPv6 {
			continue
		}
		for _, c := range f.Pools {
			if c.Pool.Name == l.Spec.Pool {
				return l, true, nil
			}
		}
		return nil, false, errElsewhere
	}
	return nil, false, nil
}
