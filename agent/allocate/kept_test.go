// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// retainBefore makes Retained leases of before the pools were edited: also of
// addresses that they do not hand out, and of pools that are closed.
func (w *world) retainBefore(t *testing.T, leases Leases, l *ledger) {
	t.Helper()
	r := rand.New(rand.NewPCG(w.seed, 2))
	for i := range w.pools {
		p := &w.pools[i]
		if !chance(r, 50) {
			continue
		}
		old := interfaceOfPod{pod: fmt.Sprintf("old-%d", i), iface: interfaceOf(0)}
		made, err := leases.Create(t.Context(), lease.Request{
			Pool: p.Name, Network: p.Spec.Network, Addr: addrOf(r, p.Spec.Subnet),
			Holder: v1alpha1.Holder{Namespace: "shop", Pod: old.pod, ContainerID: old.pod, Interface: old.iface},
		})
		if err != nil {
			continue // a pool that overlaps this one has the address
		}
		old.leases = []*v1alpha1.IPLease{made}
		l.live[made.Name] = "Retained"
		l.retained = append(l.retained, old)
	}
}

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
