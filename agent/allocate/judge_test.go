package allocate

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// judgement compares what an interface got, or was told, with the oracle.
type judgement struct {
	*world
	ask
	// from and to are the moments of the history when the interface asked and was answered.
	from, to int
}

// wants tells whether the interface is to have an address of a family.
func (j judgement) wants(ipv6 bool) bool {
	return slices.ContainsFunc(j.candidates(ipv6), func(p *v1alpha1.IPPool) bool {
		return !j.implied || meant(p, j.Request, j.definition)
	})
}

func (j judgement) candidates(ipv6 bool) []*v1alpha1.IPPool {
	if ipv6 {
		return named(j.pools, j.v6, true)
	}
	return named(j.pools, j.v4, false)
}

// serves tells whether a pool may give the interface something new at all.
func (j judgement) serves(p *v1alpha1.IPPool) bool {
	return open(p) && meant(p, j.Request, j.definition) && len(j.allows[p.Name]) > 0
}

// granted returns what is wrong with the leases that the interface got.
func (j judgement) granted(leases []*v1alpha1.IPLease) error {
	got := map[bool]bool{}
	for _, l := range leases {
		addr := netip.MustParseAddr(l.Spec.Address)
		if got[addr.Is6()] {
			return fmt.Errorf("%s is the second address of its family", addr)
		}
		got[addr.Is6()] = true
		i := slices.IndexFunc(j.candidates(addr.Is6()), func(p *v1alpha1.IPPool) bool { return p.Name == l.Spec.Pool })
		if i < 0 {
			return fmt.Errorf("%s is of pool %s, which is not asked for", addr, l.Spec.Pool)
		}
		p := j.candidates(addr.Is6())[i]
		if !j.serves(p) || !slices.Contains(j.allows[p.Name], addr) {
			return fmt.Errorf("pool %s does not allow %s", p.Name, addr)
		}
		if l.Name != v1alpha1.LeaseName(p.Spec.Network, addr) {
			return fmt.Errorf("the lease of %s is called %s", addr, l.Name)
		}
	}
	for _, ipv6 := range []bool{false, true} {
		if j.wants(ipv6) != got[ipv6] {
			return fmt.Errorf("an address of family IPv6=%v: wanted %v, got %v", ipv6, j.wants(ipv6), got[ipv6])
		}
	}
	for _, addr := range j.IPs {
		if !slices.ContainsFunc(leases, func(l *v1alpha1.IPLease) bool { return l.Spec.Address == addr.String() }) {
			return fmt.Errorf("%s was requested", addr)
		}
	}
	return nil
}

// refused returns what is wrong with the reason that the interface was told.
func (j judgement) refused(err error) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range all.Unwrap() {
			if err := j.refused(err); err != nil {
				return err
			}
		}
		return nil
	}
	none, requested := (*ipam.NoPoolError)(nil), (*ipam.RequestedError)(nil)
	taken, said := (*lease.TakenError)(nil), (*ipam.AnnotationError)(nil)
	switch {
	case errors.As(err, &none):
		return j.noPool(none)
	case errors.As(err, &requested):
		return j.notAsRequested(requested.Addr)
	case errors.As(err, &taken):
		if !j.history.everAllTaken([]string{taken.Lease.Name}, j.from, j.to) {
			return fmt.Errorf("%s was free all the time", taken.Lease.Name)
		}
		return nil
	case errors.As(err, &said):
		if !j.unknown {
			return errors.New("the annotations name no unknown pool")
		}
		return nil
	}
	return errors.New("this is no reason")
}

// noPool demands a true reason for each pool that was asked for.
func (j judgement) noPool(none *ipam.NoPoolError) error {
	reasons := map[string]ipam.Rejection{}
	for _, r := range none.Rejected {
		reasons[r.Pool] = r
	}
	for _, p := range j.candidates(none.IPv6) {
		r, ok := reasons[p.Name]
		switch {
		case !ok || r.Reason == "" || r.Detail == "":
			return fmt.Errorf("pool %s was left out without a reason", p.Name)
		case !j.serves(p):
			if r.Reason == ipam.Exhausted {
				return fmt.Errorf("pool %s is called exhausted, and may not serve at all", p.Name)
			}
		case r.Reason != ipam.Exhausted:
			return fmt.Errorf("pool %s may serve, and was left out for %s", p.Name, r.Reason)
		default:
			if err := j.exhausted(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// exhausted demands a moment when all of a pool was leased. Of a pool that
// overlaps another no list shows all of it at one moment: there each address
// must have been leased at some.
func (j judgement) exhausted(p *v1alpha1.IPPool) error {
	leases := leasesOf(p, j.allows[p.Name])
	if !j.shared[p.Name] {
		if !j.history.everAllTaken(leases, j.from, j.to) {
			return fmt.Errorf("pool %s always had an address free", p.Name)
		}
		return nil
	}
	for _, l := range leases {
		if !j.history.everAllTaken([]string{l}, j.from, j.to) {
			return fmt.Errorf("%s of pool %s was free all the time", l, p.Name)
		}
	}
	return nil
}

// notAsRequested demands that no pool could give the address that was asked for.
func (j judgement) notAsRequested(addr netip.Addr) error {
	if isStranger(addr) || !j.wants(addr.Is6()) {
		return nil
	}
	for _, p := range j.candidates(addr.Is6()) {
		if j.serves(p) && slices.Contains(j.allows[p.Name], addr) {
			return fmt.Errorf("pool %s allows %s", p.Name, addr)
		}
	}
	return nil
}

// isStranger tells whether somebody without a lease answers for an address.
func isStranger(a netip.Addr) bool { return a.AsSlice()[len(a.AsSlice())-1] == 6 }
