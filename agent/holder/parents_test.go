// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// The interfaces of these pods are on eth1, for example because the node's default route moved there.
func TestAPoolThatNamesItsParentsGivesAnAddressOnNoOther(t *testing.T) {
	pool := fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9"))
	pool.Spec.Parents = []string{"eth0"}
	says := []string{"pool v4: its parents [eth0] do not include eth1: put the pod on one of them", "name eth1 in spec.parents"}
	asking := func(r *agentapi.AddRequest) { r.IPs = []netip.Addr{fakenode.Two} }
	for rule, row := range map[string]struct {
		pod    func(*fakenode.Node) agentapi.AddRequest
		leases []string
	}{
		"a free address":  {func(r *fakenode.Node) agentapi.AddRequest { return r.Pod("web-0", "u1") }, nil},
		"a requested one": {func(r *fakenode.Node) agentapi.AddRequest { a := r.Pod("web-0", "u1"); asking(&a); return a }, nil},
		"a Warm one": {func(r *fakenode.Node) agentapi.AddRequest {
			r.WarmLease("10.0.0.7", true)
			return r.Pod("web-0", "u1")
		}, []string{"10.0.0.7 Warm"}},
		"a kept one": {func(r *fakenode.Node) agentapi.AddRequest {
			r.API.Put(fakenode.Held("10.0.0.7", fakenode.Retained))
			return r.Pod("web-0", "u1", fakenode.OfStatefulSet)
		}, []string{"10.0.0.7 Retained"}},
	} {
		t.Run(rule, func(t *testing.T) {
			r := fakenode.New(t, pool.DeepCopy())
			check.Says(t, r.Refused(agentapi.CodeNoPool, row.pod(r)), says...)
			events := r.Told()
			check.Must(t, len(events) == 1, "events %q", events)
			check.Says(t, events[0], append(says, "Warning AddressRefused")...)
			r.Want(row.leases...)
		})
	}
	t.Run("the pool of its parent serves it", func(t *testing.T) {
		here := fakenode.Pool("here", "10.0.1.0/24", v1alpha1.ModeOff, "10.0.1.2")
		here.Spec.Parents, here.Spec.Default = []string{"eth1"}, new(true)
		r := fakenode.New(t, pool.DeepCopy(), here)
		r.Gets(r.Pod("web-0", "u1"), "10.0.1.2")
	})
	t.Run("a pod that runs keeps its address", func(t *testing.T) {
		before := fakenode.V4("10.0.0.2-10.0.0.9")
		r, web := fakenode.WithPod(t, before.DeepCopy())
		r.API.Put(pool.DeepCopy())
		r.Restart()
		check.OK(t, r.Check(t.Context(), agentapi.CheckRequest{Attachment: web.Attachment}))
		check.That(t, r.Speaks(web, "10.0.0.2"), "the pod is mute")
	})
}
