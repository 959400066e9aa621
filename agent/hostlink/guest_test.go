// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package hostlink

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
)

// child is the interface of a pod on its parent. In a guest, all tests run on ipvlan.
func child() netlink.Link { return &netlink.IPVlan{Mode: netlink.IPVLAN_MODE_L2} }

// Administrators start kernels with ipv6.disable=1. A pod with an IPv4 address has its host link there,
// although the services and the node have addresses of both families.
func TestGuestWithoutIPv6(t *testing.T) {
	check.Must(t, !hasIPv6(), "this kernel was started with IPv6: start the guest with -parameters ipv6.disable=1")
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.7/24"}, []string{"10.0.0.8/24"})
	for range 2 { // the second round repairs what the first has made
		for _, e := range entries {
			check.OK(r, r.links.Make(e))
			check.OK(r, r.links.Check(e))
		}
		r.wantAnswers(r.node, pod, nodeAddr4+":80", nodeAddr4+":80", "10.0.0.7")
		r.wantAnswers(pod, r.node, ":80", "10.0.0.7:80", nodeAddr4)
		r.wantAnswers(pod, r.router, ":80", "10.0.0.8:80", routerAddr4)
		check.OK(r, r.links.Remove(entries[0]))
	}
}
