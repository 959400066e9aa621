package condition

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// few is how many of many things are named.
const few = 10

// Few names the first items and counts the others.
func Few(items []string, separator string) string {
	return counted(items[:min(few, len(items))], separator, len(items))
}

// Problems names the errors that err joins.
func Problems(err error) string { return Few(strings.Split(err.Error(), "\n"), "; ") }

// Leases names the lowest addresses of the leases and who has each. It sorts the leases.
func Leases(leases []*v1alpha1.IPLease) string {
	slices.SortFunc(leases, func(a, b *v1alpha1.IPLease) int {
		return cmp.Or(address(a).Compare(address(b)), cmp.Compare(a.Name, b.Name))
	})
	named := make([]string, min(few, len(leases)))
	for i := range named {
		named[i] = leases[i].Spec.Address + " (" + owner(&leases[i].Spec) + ")"
	}
	return counted(named, ", ", len(leases))
}

func counted(named []string, separator string, of int) string {
	text := strings.Join(named, separator)
	if of > len(named) {
		text += fmt.Sprintf(" and %d more", of-len(named))
	}
	return text
}

// owner says who has a lease: "pod shop/web-0", "Retained for pod shop/web-0", "Warm on n1".
func owner(s *v1alpha1.IPLeaseSpec) string {
	switch {
	case s.State == v1alpha1.StateWarm:
		return string(s.State) + " on " + s.NodeName
	case s.Holder == nil || s.Holder.Pod == "":
		return string(s.State)
	case s.State == v1alpha1.StateBound:
		return "pod " + s.Holder.Namespace + "/" + s.Holder.Pod
	}
	return string(s.State) + " for pod " + s.Holder.Namespace + "/" + s.Holder.Pod
}

// address is the zero Addr for text that is none, which the API server refuses in a lease.
func address(l *v1alpha1.IPLease) netip.Addr {
	a, _ := netip.ParseAddr(l.Spec.Address)
	return a
}
