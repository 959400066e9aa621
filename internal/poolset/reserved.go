// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// ReservedSet returns the addresses that at least one of the reservations keeps back. It ignores
// entries that cannot be read; ReservedBy returns their problems.
func ReservedSet(reservations []v1alpha1.ReservedIP) Set {
	var spans []span
	for i := range reservations {
		s, _ := parseField("spec.ips", reservations[i].Spec.IPs, netip.Prefix{})
		spans = append(spans, s...)
	}
	return newSet(spans)
}

// ReservedBy returns the addresses that one reservation keeps back. The error joins a SpecError for
// every entry that cannot be read. The set has the addresses of the other entries.
func ReservedBy(r *v1alpha1.ReservedIP) (Set, error) {
	spans, err := parseField("spec.ips", r.Spec.IPs, netip.Prefix{})
	return newSet(spans), err
}

// KeptSet returns the addresses that reservations keep for pods. No pod gets the rest of ReservedSet.
func KeptSet(reservations []v1alpha1.ReservedIP) Set {
	return ReservedSet(slices.DeleteFunc(slices.Clone(reservations), func(r v1alpha1.ReservedIP) bool { return r.Spec.For == nil || r.Machine() != "" }))
}

// Grant is what a ReservedIP keeps for a pod.
type Grant struct {
	// By is the name of the ReservedIP, and Network that of the pools.
	By, Network string
	Set         Set
	// Lacking are the addresses of the families whose list is too short for the ordinal of a StatefulSet's pod.
	Lacking Set
	// Namespace: all pods of the namespace have the addresses in common. Otherwise they are the pod's own.
	Namespace bool
}

// fewGrants is the number of grants of which each is compared with all reservations.
const fewGrants = 4

// Grants returns what reservations keep for a pod, which is described as a holder. An address that a second
// reservation has is nobody's, unless both are for somebody and of different networks.
func Grants(reservations []v1alpha1.ReservedIP, pod *v1alpha1.Holder) (all []Grant) {
	var contested map[int]string
	for i := range reservations {
		r := &reservations[i]
		if r.Spec.For == nil || r.Spec.For.Namespace != pod.Namespace {
			continue
		}
		set, lacking := keptFor(r, pod), lackingFor(r, pod)
		if set.Len()+lacking.Len() == 0 {
			continue
		}
		if len(all) >= fewGrants && contested == nil {
			contested = Contested(reservations) // it looks at all of them once
		}
		_, isContested := contested[i]
		for j := 0; j < len(reservations) && set.Len() > 0 && (contested == nil || isContested); j++ {
			if j != i && meet(r, &reservations[j]) {
				set = set.without(reservations[j].Spec.IPs)
			}
		}
		if set.Len()+lacking.Len() > 0 {
			all = append(all, Grant{By: r.Name, Network: r.Spec.Network, Set: set, Lacking: lacking, Namespace: r.Spec.For.IsNamespace()})
		}
	}
	return all
}

// meet reports whether two reservations may be for the same addresses: one for nobody counts in each network. A
// virtual address may be that of a Service, whose pods speak for it.
func meet(a, b *v1alpha1.ReservedIP) bool {
	if a.Spec.Virtual != nil && IsService(b) || IsService(a) && b.Spec.Virtual != nil {
		return false
	}
	return a.IsForNobody() || b.IsForNobody() || a.Spec.Network == b.Spec.Network
}

// without returns the set without the entries of a list. It makes no set of the list, since
// an ADD looks at thousands of them.
func (s Set) without(entries []string) Set {
	for _, entry := range entries {
		sp, err := parseEntry(entry)
		if other := (Set{spans: []span{sp}}); err == nil && s.Overlaps(other) {
			s = s.Minus(newSet([]span{sp}))
		}
	}
	return s
}

// keptFor returns the addresses that a reservation keeps for a pod of its namespace.
func keptFor(r *v1alpha1.ReservedIP, pod *v1alpha1.Holder) Set {
	switch f := r.Spec.For; {
	case f.StatefulSet != "":
		if ordinal, ok := ordinalOf(pod, f.StatefulSet); ok {
			return Union(nth(r, ordinal, false), nth(r, ordinal, true))
		}
		return Set{}
	case f.Pod != "" && f.Pod != pod.Pod,
		f.VirtualMachine != "" && (pod.OwnerKind != "VirtualMachineInstance" || f.VirtualMachine != pod.OwnerName):
		return Set{}
	}
	all, _ := ReservedBy(r)
	return all
}

// lackingFor returns the addresses of the families that a reservation has, but not for the ordinal of a pod.
func lackingFor(r *v1alpha1.ReservedIP, pod *v1alpha1.Holder) Set {
	ordinal, ok := ordinalOf(pod, r.Spec.For.StatefulSet)
	if !ok {
		return Set{}
	}
	var spans []span
	all, _ := ReservedBy(r)
	for _, ipv6 := range []bool{false, true} {
		if nth(r, ordinal, ipv6).Len() > 0 {
			continue
		}
		for _, s := range all.spans {
			if s.from.Is6() == ipv6 {
				spans = append(spans, s)
			}
		}
	}
	return newSet(spans)
}

// ordinalOf returns the ordinal of a pod of a StatefulSet.
func ordinalOf(pod *v1alpha1.Holder, statefulSet string) (uint64, bool) {
	digits, ok := strings.CutPrefix(pod.Pod, statefulSet+"-")
	if !ok || pod.OwnerKind != "StatefulSet" || pod.OwnerName != statefulSet {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	return n, err == nil && strconv.FormatUint(n, 10) == digits
}

// nth returns the nth address of a family, in the order in which the reservation lists them, or nothing. An entry that
// cannot be read has one place, so that a slip in it moves no later ordinal.
func nth(r *v1alpha1.ReservedIP, n uint64, ipv6 bool) Set {
	for _, entry := range r.Spec.IPs {
		set, err := Parse([]string{entry})
		switch {
		case err != nil && strings.Contains(entry, ":") == ipv6:
			if n == 0 {
				return Set{}
			}
			n--
		case err != nil || set.Len() == 0 || set.At(0).Is6() != ipv6:
		case n < set.Len():
			return Of(set.At(n))
		default:
			n -= set.Len()
		}
	}
	return Set{}
}

// IsKept reports whether a lease has an address that a reservation keeps for its holder.
func IsKept(r *v1alpha1.ReservedIP, l *v1alpha1.IPLease) bool {
	h := l.Spec.Holder
	if h == nil || r.Spec.For == nil || r.Spec.For.Namespace != h.Namespace {
		return false
	}
	network, addr, err := v1alpha1.ParseLeaseName(l.Name)
	return err == nil && r.Spec.Network == network && keptFor(r, h).Contains(addr)
}

// KeptForAnother returns the reservation that keeps an address of a network for somebody else than a pod, which is
// described as a holder. It returns nil if there is none, or if one keeps the address for the pod as well.
func KeptForAnother(reservations []v1alpha1.ReservedIP, network string, addr netip.Addr, pod *v1alpha1.Holder) (by *v1alpha1.ReservedIP) {
	for i := range reservations {
		r := &reservations[i]
		if r.Spec.For == nil || r.Spec.Network != network || !has(r.Spec.IPs, addr) {
			continue
		}
		if r.Spec.For.Namespace == pod.Namespace && keptFor(r, pod).Contains(addr) {
			return nil
		}
		by = r
	}
	return by
}

// has reports whether a list has an address. It makes no set of the list.
func has(entries []string, addr netip.Addr) bool {
	return slices.ContainsFunc(entries, func(entry string) bool {
		s, err := parseEntry(entry)
		return err == nil && s.from.Compare(addr) <= 0 && addr.Compare(s.to) <= 0
	})
}

// Contested returns, for each reservation by its index, the title of another one that has one of its addresses, if one of
// both keeps it for somebody or is virtual. Two for somebody of different networks have no address in common.
func Contested(reservations []v1alpha1.ReservedIP) map[int]string {
	type of struct {
		span
		reservation int
	}
	var all []of
	for i := range reservations {
		set, _ := ReservedBy(&reservations[i])
		for _, s := range set.spans {
			all = append(all, of{s, i})
		}
	}
	slices.SortFunc(all, func(a, b of) int { return a.from.Compare(b.from) })
	found := map[int]string{}
	// far are the spans so far that reach furthest, of the reservations for nobody, of Services, and of those for
	// somebody in each network. The spans of one reservation never meet.
	var far []*of
	for i := range all {
		s, r, at := &all[i], &reservations[all[i].reservation], -1
		for j, f := range far {
			other := &reservations[f.reservation]
			if !meet(r, other) {
				continue
			}
			if r.IsForNobody() == other.IsForNobody() && IsService(r) == IsService(other) {
				at = j
			}
			if !(r.IsForNobody() && other.IsForNobody()) && f.to.Compare(s.from) >= 0 {
				found[f.reservation], found[s.reservation] = Title(r), Title(other)
			}
		}
		switch {
		case at < 0:
			far = append(far, s)
		case far[at].to.Compare(s.to) < 0:
			far[at] = s
		}
	}
	return found
}
