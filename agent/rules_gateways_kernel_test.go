// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// gatewayChecks starts pods beside a router that answers for more and more of their gateways.
func (m *machine) gatewayChecks(t *testing.T) {
	const router = "eth0" // its interface
	yes, gateways := true, []string{"10.70.87.1", "fd70:87::1"}
	checked := func(gateway string) func(*v1alpha1.IPPool) {
		return func(p *v1alpha1.IPPool) { p.Spec.Gateway, p.Spec.GatewayCheck = &gateway, &yes }
	}
	m.pool(t, "gated", 87, checked(gateways[0]))
	m.pool(t, "gated-6", 0, v6("fd70:87::/64"), checked(gateways[1]))
	pools := saying("ipam.fenceline.io/ippool", `{"ipv4":["gated"],"ipv6":["gated-6"]}`)
	elsewhere := *m
	elsewhere.parent = m.parent + "g"
	ns := routerAt(t, elsewhere.parent, router)
	macvlan := elsewhere.plugins(t)
	for _, c := range []struct {
		answers, silent string
	}{
		{"", gateways[0] + " of pool gated does"},
		{gateways[0] + "/24", gateways[1] + " of pool gated-6 does"},
		{gateways[1] + "/64", ""},
	} {
		if c.answers != "" {
			check.OK(t, ns.AddAddr(router, netip.MustParsePrefix(c.answers)))
		}
		pod, inside := m.unplugged(pools)
		before := hostLinks(t)
		err := macvlan.linked(t, pod, "eth0", "")
		if c.silent == "" {
			check.OK(t, err)
			if got := routingOf(t, inside); got != "host-eth0" {
				t.Errorf("the pod has %q, want a host link", got)
			}
			continue
		}
		words := []string{"gateway " + c.silent + " not answer on parent " + elsewhere.parent + " of node n1"}
		if e, ok := errors.AsType[*types.Error](err); !ok || e.Code != agentapi.CodeTryAgainLater || !contains(e.Msg, words) {
			t.Errorf("got %v, want code 11 with %q", err, words)
		}
		if after := hostLinks(t); !slices.Equal(before, after) {
			t.Errorf("the node has %q, and had %q", after, before)
		}
		leases := &v1alpha1.IPLeaseList{}
		check.OK(t, m.List(t.Context(), leases))
		for _, l := range leases.Items {
			if h := l.Spec.Holder; h != nil && h.ContainerID == pod.ContainerID {
				t.Errorf("lease %s is %s", l.Name, l.Spec.State)
			}
		}
	}
}

// routerAt makes a parent whose other end is the interface of a router without addresses.
func routerAt(t *testing.T, parent, iface string) *network.Namespace {
	t.Helper()
	ns, err := network.Create(fmt.Sprintf("%s-router", parent))
	check.OK(t, err)
	t.Cleanup(func() { check.OK(t, ns.Delete()) })
	f, err := os.Open(ns.Path())
	check.OK(t, err)
	defer f.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = parent
	check.OK(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: iface, PeerNamespace: netlink.NsFd(f.Fd())}))
	link, err := netlink.LinkByName(parent)
	check.OK(t, err)
	t.Cleanup(func() { check.OK(t, netlink.LinkDel(link)) })
	check.OK(t, errors.Join(netlink.LinkSetUp(link), ns.SetUp(iface, true)))
	return ns
}
