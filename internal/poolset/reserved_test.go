// SPDX-License-Identifier: Apache-2.0

package poolset_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

func reservation(ips ...string) v1alpha1.ReservedIP {
	return v1alpha1.ReservedIP{Spec: v1alpha1.ReservedIPSpec{IPs: ips}}
}

func TestReservedSet(t *testing.T) {
	for _, row := range []struct {
		name         string
		reservations []v1alpha1.ReservedIP
		len          uint64
		in, out      []string
	}{
		{"no reservation keeps nothing back", nil, 0, nil, []string{"10.1.0.1"}},
		{"addresses, ranges and CIDRs of either family",
			[]v1alpha1.ReservedIP{reservation("10.1.0.1", "10.1.0.8-10.1.0.9", "10.2.0.0/30", "fd00::/126")}, 11,
			[]string{"10.1.0.1", "10.1.0.9", "10.2.0.3", "fd00::3"}, []string{"10.1.0.2", "10.1.0.10", "10.2.0.4", "fd00::4"}},
		{"several reservations together, what they share once",
			[]v1alpha1.ReservedIP{reservation("10.1.0.1-10.1.0.4"), reservation("10.1.0.3-10.1.0.6")}, 6,
			[]string{"10.1.0.1", "10.1.0.6"}, []string{"10.1.0.7"}},
		{"an entry that ends before it starts keeps nothing back, the others hold",
			[]v1alpha1.ReservedIP{reservation("fd00::20-fd00::10", "fd00::1"), reservation("10.1.0.1")}, 2,
			[]string{"fd00::1", "10.1.0.1"}, []string{"fd00::10", "fd00::15", "fd00::20"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			set := poolset.ReservedSet(row.reservations)
			check.That(t, set.Len() == row.len, "%d addresses, want %d", set.Len(), row.len)
			for _, a := range row.in {
				check.That(t, set.Contains(netip.MustParseAddr(a)), "%s is not reserved", a)
			}
			for _, a := range row.out {
				check.That(t, !set.Contains(netip.MustParseAddr(a)), "%s is reserved", a)
			}
		})
	}
}

func TestReservedByNamesEveryBadEntry(t *testing.T) {
	r := reservation("fd00::20-fd00::10", "10.1.0.1", "ten")
	set, err := poolset.ReservedBy(&r)
	var spec *poolset.SpecError
	check.That(t, errors.As(err, &spec) && spec.Field == "spec.ips[0]", "error %v, want one of spec.ips[0]", err)
	const want = "spec.ips[0]: range fd00::20-fd00::10 ends before it starts\nspec.ips[2]: \"ten\" is not an IP address"
	check.That(t, err != nil && err.Error() == want, "error %v, want %s", err, want)
	check.That(t, set.Len() == 1, "%d addresses, want the good one", set.Len())
	good := reservation("10.1.0.1")
	check.Is(t, check.Err(poolset.ReservedBy(&good)), nil, "a good reservation:")
}
