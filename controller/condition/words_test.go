// SPDX-License-Identifier: Apache-2.0

package condition_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
	"github.com/fenceline/fenceline/test/check"
)

func lease(address string, state v1alpha1.LeaseState, pod string) *v1alpha1.IPLease {
	l := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: address}}
	l.Spec = v1alpha1.IPLeaseSpec{Address: address, State: state, NodeName: "n1"}
	if pod != "" {
		l.Spec.Holder = &v1alpha1.Holder{Namespace: "shop", Pod: pod}
	}
	return l
}

func TestLeases(t *testing.T) {
	var many []*v1alpha1.IPLease
	for i := range 12 {
		many = append(many, lease(fmt.Sprintf("10.1.0.%d", 12-i), v1alpha1.StateWarm, ""))
	}
	for _, row := range []struct {
		name   string
		leases []*v1alpha1.IPLease
		want   string
	}{
		{"none", nil, ""},
		{"by address, not by text", []*v1alpha1.IPLease{
			lease("10.1.0.10", v1alpha1.StateBound, "web-1"), lease("10.1.0.9", v1alpha1.StateBound, "web-0")},
			"10.1.0.9 (pod shop/web-0), 10.1.0.10 (pod shop/web-1)"},
		{"who has it, by state", []*v1alpha1.IPLease{
			lease("10.1.0.1", v1alpha1.StateWarm, ""), lease("10.1.0.2", v1alpha1.StateRetained, "db-0"),
			lease("10.1.0.3", v1alpha1.StateQuarantined, ""), lease("10.1.0.4", v1alpha1.StateQuarantined, "db-1")},
			"10.1.0.1 (Warm on n1), 10.1.0.2 (Retained for pod shop/db-0), 10.1.0.3 (Quarantined), 10.1.0.4 (Quarantined for pod shop/db-1)"},
		{"ten of many, and how many more", many,
			"10.1.0.1 (Warm on n1), 10.1.0.2 (Warm on n1), 10.1.0.3 (Warm on n1), 10.1.0.4 (Warm on n1), 10.1.0.5 (Warm on n1), " +
				"10.1.0.6 (Warm on n1), 10.1.0.7 (Warm on n1), 10.1.0.8 (Warm on n1), 10.1.0.9 (Warm on n1), 10.1.0.10 (Warm on n1) and 2 more"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := condition.Leases(row.leases)
			check.That(t, got == row.want, "got  %s\nwant %s", got, row.want)
		})
	}
}

func TestProblemsAreNamedAndBounded(t *testing.T) {
	check.Equal(t, condition.Problems(errors.Join(errors.New("a"), errors.Join(errors.New("b"), errors.New("c")))), "a; b; c", "got")
	var errs []error
	for i := range 512 {
		errs = append(errs, fmt.Errorf("%d%s", i, strings.Repeat("x", 150)))
	}
	got := condition.Problems(errors.Join(errs...))
	check.That(t, len(got) <= 32768 && strings.HasSuffix(got, " and 502 more"), "%d bytes: %s", len(got), got)
}
