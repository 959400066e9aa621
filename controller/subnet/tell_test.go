// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/check"
)

// An application that lacks addresses of both families is told so once for each, not at every pass.
func TestApplicationIsToldOnce(t *testing.T) {
	recorder := events.NewFakeRecorder(8)
	r := Reconciler{Events: recorder, Owners: owner.Asker{Mapper: meta.NewDefaultRESTMapper(nil)}}
	lacks := func(v4, v6 string) Plan {
		u := func(message string, ipv6 bool) Unserved {
			return Unserved{Ref: owner.Ref{Kind: "Deployment", Name: "web"}, Unserved: v1alpha1.Unserved{Message: message}, IPv6: ipv6}
		}
		return Plan{Unserved: []Unserved{u(v4, false), u(v6, true)}}
	}
	for i, c := range []struct {
		plan Plan
		want int
	}{
		{lacks("no IPv4", "no IPv6"), 2},
		{lacks("no IPv4", "no IPv6"), 2},
		{lacks("no IPv4", "IPSubnet v6 does not exist"), 3},
		{Plan{}, 3},
		{lacks("no IPv4", "no IPv6"), 5},
	} {
		r.tell(c.plan)
		n := len(recorder.Events)
		check.That(t, n == c.want, "pass %d: %d events, want %d", i, n, c.want)
	}
}
