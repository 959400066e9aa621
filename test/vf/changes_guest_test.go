// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package vf_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/vf"
)

// gauge waits until a gauge of a node's agent has a value.
func (p pods) gauge(t *testing.T, n *nodes.Node, name string, labels map[string]string, want float64) {
	t.Helper()
	check.Eventually(t, nodes.Limit, name, func() error {
		got, err := n.Sum(t.Context(), name, labels)
		if err == nil && got != want {
			err = fmt.Errorf("%s of %v is %v, want %v", name, labels, got, want)
		}
		return err
	})
}

// stillGuards has a foreign host speak for the address of a pod: the node finds it, so the guard, or the
// observer of the PF, hears the segment.
func (p pods) stillGuards(t *testing.T, s *nodes.Sandbox) {
	t.Helper()
	if !check.Value(s.Guarded())(t) {
		t.Error("no guard is on the VF")
	}
	thief := p.Host(netip.PrefixFrom(s.Addr, 24))
	p.conflicts(t, "v4", s.Addr, thief, v1alpha1.StateBound, "")
	check.OK(t, thief.Unplug())
}

// Somebody moves the VF of a running pod to another network namespace, where it goes on with the pod's
// address. The loss is reported, no second speaker comes, and the VF serves the next pod.
func TestGuestAVFThatIsMovedByHand(t *testing.T) {
	c := vf.New(t, 2)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.3")
	p, host, n := podsOf(c, vf.SRIOV, vf.Delegated), c.LAN.Hosts[0], c.Nodes[0]
	lost := p.add(t, 1, 0)
	elsewhere := network.New(t, "elsewhere")
	link := check.Value(lost.Links().LinkByName(namespaces.PodInterface))(t)
	target := check.Value(os.Open(elsewhere.Path()))(t)
	check.OK(t, errors.Join(lost.Links().LinkSetNsFd(link, int(target.Fd())), target.Close()))
	check.OK(t, errors.Join(
		elsewhere.SetUp(namespaces.PodInterface, true),
		elsewhere.AddAddr(namespaces.PodInterface, netip.PrefixFrom(lost.Addr, 24))))
	p.gauge(t, n, "fenceline_interfaces_gone", nil, 1)
	far := p.add(t, 2, 0)
	if far.Addr == lost.Addr {
		t.Errorf("%s was given away while its pod exists", lost.Addr)
	}

	t.Log("DEL of the moved VF:", lost.Del(t.Context()))
	check.OK(t, errors.Join(lost.Remove(), c.ForgetPod(t.Context(), lost.Pod)))
	taken := p.begin(t, 2, 1)
	p.reach(t, far, taken)
	check.OK(t, c.SpeakersAreHolders())

	// It comes back to its node, and serves again.
	delete(p.begun, lost)
	back := check.Value(elsewhere.Links().LinkByName(namespaces.PodInterface))(t)
	home := check.Value(os.Open(host.Path()))(t)
	check.OK(t, errors.Join(
		elsewhere.Links().LinkSetDown(back), elsewhere.Links().LinkSetName(back, check.Value(host.VFs())(t)[0].Name()),
		elsewhere.Links().LinkSetNsFd(back, int(home.Fd())), home.Close()))
	p.remove(t, far)
	next := p.begin(t, 1, 0)
	p.reach(t, next, taken)
	p.remove(t, next)
	p.remove(t, taken)
}

// A PF is in a bond. The parent is the PF.
func TestGuestAPFInABond(t *testing.T) {
	c := vf.New(t, 2)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	p, host := podsOf(c, vf.SRIOV, vf.Delegated), c.LAN.Hosts[0]
	const name = "bond0"
	bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: name})
	bond.Mode = netlink.BOND_MODE_ACTIVE_BACKUP
	bond.Miimon = 100
	port := pf(t, host)
	check.OK(t, errors.Join(host.Links().LinkAdd(bond), host.Links().LinkSetDown(port)))
	check.OK(t, errors.Join(host.Links().LinkSetMaster(port, bond), host.Links().LinkSetUp(bond)))
	vf.AwaitCarrier(t, host.Namespace, name)
	pod, far := p.add(t, 1, 0), p.add(t, 2, 0)
	p.reach(t, pod, far)
	p.reach(t, far, pod)
	p.stillGuards(t, pod)
	p.remove(t, pod)
	p.remove(t, far)
	check.OK(t, errors.Join(host.Links().LinkDel(bond), host.SetUp(namespaces.Parent, true)))
}
