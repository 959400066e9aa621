// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package vf_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/vf"
)

// A VF and a macvlan pod are on one PF, and a pod of another node is on a bridge, with addresses of one pool. The card
// of the bridge has no VFs: with VFs, it passes the node no frame for a MAC that it does not know.
func TestGuestVFsAndOtherPodsShareAPF(t *testing.T) {
	c := vf.New(t, 2)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	p := podsOf(c, vf.HostDevice, vf.Delegated)
	near, far := p.add(t, 1, 0), p.add(t, 2, 0)
	pod := check.Value(c.Nodes[0].NewPod(t.Context(), "macvlan", nil))(t)
	beside := check.Value(c.Nodes[0].Begin(t.Context(), pod))(t)
	p.reach(t, near, far)
	p.remove(t, far)
	n := c.Nodes[1]
	check.OK(t, errors.Join(c.LAN.Hosts[1].SetVFs(0), n.AddBridge("br0"), n.Replug(namespaces.Parent, "br0")))
	n.Plugin = `"type":"bridge","bridge":"br0"`
	pod = check.Value(n.NewPod(t.Context(), "bridged", nil))(t)
	bridged := check.Value(n.Begin(t.Context(), pod))(t)
	all := []*nodes.Sandbox{near, beside, bridged}
	for _, from := range all {
		for _, to := range all {
			if from != to {
				p.reach(t, from, to)
			}
		}
	}
	check.OK(t, c.SpeakersAreHolders())
	check.OK(t, errors.Join(beside.End(t.Context()), bridged.End(t.Context())))
	p.remove(t, near)
	check.OK(t, c.LeasesAreLiving(t.Context(), v1alpha1.StateWarm))
}

// VFs in a VLAN and VFs beside them have the same addresses.
func TestGuestTwoVLANsOfAPFStayApart(t *testing.T) {
	const tag, tagged = 5, "ul0.5"
	c := vf.New(t, 2)
	plain, five := podsOf(c, vf.HostDevice, vf.Delegated), podsOf(c, vf.HostDevice, vf.Delegated)
	five.parent, five.network = tagged, "five"
	for _, pool := range []string{"plain", "five"} {
		spec := v1alpha1.IPPoolSpec{Subnet: "10.66.0.0/24", IPs: []string{"10.66.0.20-10.66.0.21"}, Default: ptr.To(false)}
		if pool == "five" {
			spec.Network = pool
		}
		check.OK(t, c.Create(t.Context(), &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: spec}))
	}
	for _, h := range c.LAN.Hosts {
		check.OK(t, h.Links().LinkSetVfVlan(pf(t, h), 0, tag))
	}
	pod := check.Value(c.Nodes[0].NewPod(t.Context(), "early", nodes.Wants("five")))(t)
	early := check.Value(five.NewSandbox(1, pod, check.Value(c.LAN.Hosts[0].VFs())(t)[0], vf.HostDevice, vf.Delegated))(t)
	check.That(t, early.Add(t.Context()) != nil, "a VF in a VLAN that the node is not in got an address")
	check.OK(t, errors.Join(early.Del(t.Context()), five.takeBack(early)))
	for _, h := range c.LAN.Hosts {
		check.OK(t, errors.Join(h.AddChild(namespaces.Parent, &netlink.Vlan{VlanId: tag}, h.Namespace, tagged), h.SetUp(tagged, true)))
	}
	had, all := map[string]int{}, map[*nodes.Sandbox]pods{}
	for pool, p := range map[string]pods{"plain": plain, "five": five} {
		index := map[string]int{"plain": 1, "five": 0}[pool]
		near, far := p.begin(t, 1, index, nodes.Wants(pool)), p.begin(t, 2, index, nodes.Wants(pool))
		p.reach(t, near, far)
		for _, s := range []*nodes.Sandbox{near, far} {
			had[s.Addr.String()]++
			all[s] = p
		}
	}
	check.That(t, had["10.66.0.20"] == 2 && had["10.66.0.21"] == 2, "each address should have a pod in each VLAN: %v", had)
	for s, p := range all {
		p.end(t, s)
	}
	for _, h := range c.LAN.Hosts {
		check.OK(t, errors.Join(h.Links().LinkSetVfVlan(pf(t, h), 0, 0), h.DeleteLink(tagged)))
	}
}

// The VFs are made again under a running pod, as by a reload of the driver. The pod keeps its address until
// it ends, and its loss is reported. The next pod speaks, and no guard is left.
func TestGuestVFsThatAreMadeAgain(t *testing.T) {
	c := vf.New(t, 2)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	p, host, n := podsOf(c, vf.SRIOV, vf.Delegated), c.LAN.Hosts[0], c.Nodes[0]
	lost, far := p.add(t, 1, 0), p.add(t, 2, 0)
	check.OK(t, host.SetVFs(0))
	check.OK(t, host.SetVFs(2))
	check.Eventually(t, limit, "the report of the lost interface", func() error {
		gone, err := n.Sum(t.Context(), "fenceline_interfaces_gone", nil)
		if err == nil && gone != 1 {
			err = fmt.Errorf("%v interfaces are gone", gone)
		}
		return err
	})
	next := p.add(t, 1, 0)
	p.reach(t, next, far)
	check.That(t, next.Addr != lost.Addr, "%s was given away while its pod exists", lost.Addr)
	t.Log("DEL of the lost VF:", lost.Del(t.Context()))
	check.OK(t, errors.Join(p.takeBack(lost), c.ForgetPod(t.Context(), lost.Pod)))
	p.reach(t, next, far)
	p.removeAll(t, next, far)
	p.noGuards(t)
	check.OK(t, c.LeasesAreLiving(t.Context(), v1alpha1.StateWarm))
}
