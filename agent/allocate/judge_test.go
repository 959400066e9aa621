// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

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

// names are what stands in the list of a family.
func (j judgement) names(ipv6 bool) []string {
	if ipv6 {
		return j.v6
	}
	return j.v4
}

func (j judgement) candidates(ipv6 bool) []*v1alpha1.IPPool {
	return named(j.pools, j.names(ipv6), ipv6)
}

// mayHave are the candidates and the pools of kept addresses, whichever pools are named now. Only
// the pod itself leaves a pool.
func (j judgement) mayHave(ipv6 bool) []*v1alpha1.IPPool {
	all := slices.Clone(j.candidates(ipv6))
	if j.ofPod {
		return all
	}
	for _, l := range j.kept {
		for _, p := range named(j.pools, []string{l.Spec.Pool}, ipv6) {
			if !slices.Contains(all, p) && len(notMeant(p, j.Request, j.definition)) == 0 {
				all = append(all, p)
			}
		}
	}
	return all
}

// wants tells whether the interface is to have an address of a family.
func (j judgement) wants(ipv6 bool) bool {
	if len(j.mayHave(ipv6)) > len(j.candidates(ipv6)) {
		return true
	}
	if !j.implied {
		return len(j.names(ipv6)) > 0
	}
	return slices.ContainsFunc(j.candidates(ipv6), func(p *v1alpha1.IPPool) bool {
		return len(notMeant(p, j.Request, j.definition)) == 0
	})
}

// why returns the reasons for which a pool may not give the interface something new.
func (j judgement) why(p *v1alpha1.IPPool) []ipam.Reason {
	return append(notMeant(p, j.Request, j.definition), closed(p, j.allowsAll[p.Name], j.allows[p.Name])...)
}

func (j judgement) serves(p *v1alpha1.IPPool) bool { return len(j.why(p)) == 0 }

// granted returns what is wrong with the leases that the interface got.
func (j judgement) granted(leases []*v1alpha1.IPLease) error {
	if len(j.mistakes) > 0 {
		return fmt.Errorf("the mistakes in the annotations are %q", j.mistakes)
	}
	got := map[bool]bool{}
	for _, l := range leases {
		addr := netip.MustParseAddr(l.Spec.Address)
		if got[addr.Is6()] {
			return fmt.Errorf("%s is the second address of its family", addr)
		}
		got[addr.Is6()] = true
		i := slices.IndexFunc(j.mayHave(addr.Is6()), func(p *v1alpha1.IPPool) bool { return p.Name == l.Spec.Pool })
		if i < 0 {
			return fmt.Errorf("%s is of pool %s, which is not asked for", addr, l.Spec.Pool)
		}
		p := j.mayHave(addr.Is6())[i]
		switch mine := slices.Contains(j.kept, l); {
		case !mine && (!j.serves(p) || !slices.Contains(j.allows[p.Name], addr)):
			return fmt.Errorf("pool %s does not allow %s", p.Name, addr)
		case mine && len(notMeant(p, j.Request, j.definition)) > 0:
			return fmt.Errorf("%s is kept, and its pool %s is not meant for the pod", addr, p.Name)
		case !mine && j.keeps(addr.Is6()):
			return fmt.Errorf("%s is new, and another one is kept for the pod", addr)
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
	case errors.As(err, &taken):
		if !j.history.everAllTaken([]string{taken.Lease.Name}, j.from, j.to) {
			return fmt.Errorf("%s was free all the time", taken.Lease.Name)
		}
		return nil
	case errors.As(err, &requested):
		return j.notAsRequested(requested)
	case errors.Is(err, errElsewhere):
		return j.keptElsewhere()
	case errors.As(err, &said):
		if !slices.ContainsFunc(j.mistakes, func(m string) bool { return strings.Contains(said.Err.Error(), m) }) {
			return fmt.Errorf("the mistakes in the annotations are %q", j.mistakes)
		}
		return nil
	}
	return errors.New("this is no reason")
}

// noPool demands a true reason for each pool that was asked for.
func (j judgement) noPool(none *ipam.NoPoolError) error {
	if j.keeps(none.IPv6) && j.keptElsewhere() != nil {
		return errors.New("an address is kept for the pod, and its pool may be closed")
	}
	reasons := map[string]ipam.Rejection{}
	for _, r := range none.Rejected {
		reasons[r.Pool] = r
	}
	for _, name := range j.names(none.IPv6) {
		i := slices.IndexFunc(j.pools, func(p v1alpha1.IPPool) bool { return p.Name == name })
		switch r, ok := reasons[name]; {
		case i < 0 && ok && r.Reason != ipam.NotFound:
			return fmt.Errorf("%s is no pool, and was left out for %s", name, r.Reason)
		case i >= 0 && !j.implied && netip.MustParsePrefix(j.pools[i].Spec.Subnet).Addr().Is6() != none.IPv6 && r.Reason != ipam.WrongFamily:
			return fmt.Errorf("pool %s is of the other family, and was left out for %q", name, r.Reason)
		}
	}
	for _, p := range j.candidates(none.IPv6) {
		r, ok := reasons[p.Name]
		switch {
		case !ok || r.Reason == "" || r.Detail == "":
			return fmt.Errorf("pool %s was left out without a reason", p.Name)
		case !j.serves(p):
			if why := j.why(p); !slices.Contains(why, r.Reason) {
				return fmt.Errorf("pool %s was left out for %s, and not for one of %v", p.Name, r.Reason, why)
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

// exhausted demands a moment when all of a pool was leased. Of a pool that overlaps another no list
// shows all of it at one moment: there each address must have been leased at some.
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

// notAsRequested demands that what was told of the address is true of a pool
// that serves, or that there is none that could have it.
func (j judgement) notAsRequested(e *ipam.RequestedError) error {
	says := []string{"no pool of its family is chosen"}
	if j.wants(e.Addr.Is6()) {
		says = nil
		isAny := false
		for _, p := range j.candidates(e.Addr.Is6()) {
			if !j.serves(p) {
				continue
			}
			isAny = isAny || netip.MustParsePrefix(p.Spec.Subnet).Contains(e.Addr)
			says = append(says, withheld(p, e.Addr, j.reserved)...)
			if slices.Contains(j.allows[p.Name], e.Addr) {
				// This pool would give it: nothing but somebody who uses it will do.
				says = nil
				break
			}
		}
		if !isAny {
			says = append(says, "it is outside of the pools ")
		}
	}
	if isStranger(e.Addr) {
		says = append(says, "another host, or this node itself, answers for it")
	}
	if !slices.ContainsFunc(says, func(s string) bool { return strings.HasPrefix(e.Problem, s) }) {
		return fmt.Errorf("%s is refused, and true would be one of %q", e.Addr, says)
	}
	return nil
}

// keeps tells whether an address of a family is kept for the interface.
func (j judgement) keeps(ipv6 bool) bool {
	return slices.ContainsFunc(j.kept, func(l *v1alpha1.IPLease) bool {
		return netip.MustParseAddr(l.Spec.Address).Is6() == ipv6
	})
}

// keptElsewhere demands a kept address whose pool was not asked for, or is not meant for the pod.
func (j judgement) keptElsewhere() error {
	for _, l := range j.kept {
		ipv6 := netip.MustParseAddr(l.Spec.Address).Is6()
		i := slices.IndexFunc(j.mayHave(ipv6), func(p *v1alpha1.IPPool) bool { return p.Name == l.Spec.Pool })
		if i < 0 || len(notMeant(j.mayHave(ipv6)[i], j.Request, j.definition)) > 0 {
			return nil
		}
	}
	return errors.New("the pools of all kept addresses serve the pod")
}

// isStranger tells whether somebody without a lease answers for an address.
func isStranger(a netip.Addr) bool { return a.AsSlice()[len(a.AsSlice())-1] == 6 }
