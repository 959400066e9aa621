// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// few is the greatest number of items that a message names.
const few = 10

// Few returns a text with the first items and the number of the others.
func Few(items []string, separator string) string {
	return counted(items[:min(few, len(items))], separator, len(items))
}

// Problems returns a text with the first errors that err joins.
func Problems(err error) string { return Few(strings.Split(err.Error(), "\n"), "; ") }

// Leases returns a text with the lowest addresses of the leases and the owner of each. It sorts the
// leases.
func Leases(leases []*v1alpha1.IPLease) string {
	slices.SortFunc(leases, func(a, b *v1alpha1.IPLease) int {
		return cmp.Or(a.Spec.Addr().Compare(b.Spec.Addr()), cmp.Compare(a.Name, b.Name))
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

// owner returns the owner of a lease: "pod shop/web-0", "Retained for pod shop/web-0", "Warm on n1".
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
