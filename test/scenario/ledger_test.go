// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func TestALeaseIsTakenOnceAndFreedOnce(t *testing.T) {
	wrote := func(uid string, state v1alpha1.LeaseState) entry {
		e := entry{IPLease: v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Address: "10.78.3.30", State: state}}}
		e.UID = types.UID(uid)
		return e
	}
	deleted := func(uid string) entry {
		e := wrote(uid, v1alpha1.StateQuarantined)
		e.gone = true
		return e
	}
	bound, quarantined := wrote("a", v1alpha1.StateBound), wrote("a", v1alpha1.StateQuarantined)
	for _, tc := range []struct {
		name    string
		entries []entry
		problem string
	}{
		{"taken and freed", []entry{bound, quarantined, deleted("a")}, ""},
		{"a new verifier or message takes nothing", []entry{bound, quarantined, quarantined, deleted("a")}, ""},
		{"each by its UID", []entry{bound, wrote("b", v1alpha1.StateBound), quarantined, wrote("b", v1alpha1.StateQuarantined), deleted("b"), deleted("a")}, ""},
		{"taken again", []entry{bound, quarantined, bound, quarantined, deleted("a")}, "taken 2 times and freed 1"},
		{"freed twice", []entry{bound, quarantined, deleted("a"), deleted("a")}, "taken 1 times and freed 2"},
		{"never freed", []entry{bound, quarantined}, "freed 0"},
		{"freed without being taken", []entry{bound, deleted("a")}, "taken 0"},
	} {
		t.Run(tc.name, func(t *testing.T) { expectProblem(t, ledgerOf(tc.entries).once(), tc.problem) })
	}
}
