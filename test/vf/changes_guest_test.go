// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package vf_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf/attach"
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

// stillGuards lets a foreign host speak for the address of a pod. The node must report it, which
// shows that the guard, or the observer of the PF, hears the segment.
func (p pods) stillGuards(t *testing.T, s *nodes.Sandbox) {
	t.Helper()
	check.That(t, check.Value(s.Guarded())(t), "no guard is on the VF")
	thief := p.Host(netip.PrefixFrom(s.Addr, 24))
	p.conflicts(t, "v4", s.Addr, thief, v1alpha1.StateBound, "")
	check.OK(t, thief.Unplug())
}

// The VF of a running pod is moved by hand to another network namespace, where it still has the pod's address. The
// loss is reported, no second speaker comes, and the VF serves the next pod. A tcx link moves with the VF, so the
// VF is mute from DEL on. A filter does not move: then the address is not free until the VF has stopped.
func TestGuestAVFThatIsMovedByHand(t *testing.T) {
	c := vf.New(t, 2)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.4")
	p, host, n := podsOf(c, vf.SRIOV, vf.Delegated), c.LAN.Hosts[0], c.Nodes[0]
	lost := p.add(t, 1, 0)
	near := p.add(t, 1, 1) // by which the other node hears this one (R2)
	elsewhere := network.New(t, "elsewhere")
	link := check.Value(lost.Links().LinkByName(namespaces.PodInterface))(t)
	target := check.Value(os.Open(elsewhere.Path()))(t)
	check.OK(t, errors.Join(lost.Links().LinkSetNsFd(link, int(target.Fd())), target.Close()))
	check.OK(t, errors.Join(
		elsewhere.SetUp(namespaces.PodInterface, true),
		elsewhere.AddAddr(namespaces.PodInterface, netip.PrefixFrom(lost.Addr, 24))))
	p.gauge(t, n, "fenceline_interfaces_gone", nil, 1)
	far := p.add(t, 2, 0)
	check.That(t, far.Addr != lost.Addr, "%s was given away while its pod exists", lost.Addr)

	t.Log("DEL of the moved VF:", lost.Del(t.Context()))
	check.OK(t, errors.Join(lost.Remove(), c.ForgetPod(t.Context(), lost.Pod)))
	delete(p.begun, lost)
	comesBack := func() {
		back := check.Value(elsewhere.Links().LinkByName(namespaces.PodInterface))(t)
		home := check.Value(os.Open(host.Path()))(t)
		check.OK(t, errors.Join(
			elsewhere.Links().LinkSetDown(back), elsewhere.Links().LinkSetName(back, check.Value(host.VFs())(t)[0].Name()),
			elsewhere.Links().LinkSetNsFd(back, int(home.Fd())), home.Close()))
	}
	if !attach.HasTCX() {
		refused, _ := p.sandbox(t, 2, 1)
		check.That(t, refused.Add(t.Context()) != nil, "a pod got %s, for which the VF speaks", lost.Addr)
		l := &v1alpha1.IPLease{}
		check.OK(t, p.Get(t.Context(), client.ObjectKey{Name: v1alpha1.LeaseName("", lost.Addr)}, l))
		check.That(t, l.Spec.State == v1alpha1.StateQuarantined && l.Spec.Conflict != nil, "the lease is %s", l.Spec.State)
		check.OK(t, errors.Join(p.takeBack(refused), c.ForgetPod(t.Context(), refused.Pod)))
		comesBack()
		check.Eventually(t, nodes.Limit, "the next probe of the conflict, which hears nobody", func() error {
			err := p.Get(t.Context(), client.ObjectKeyFromObject(l), l)
			if err == nil {
				err = fmt.Errorf("the lease is %s: %s", l.Spec.State, l.Spec.Message)
			}
			return client.IgnoreNotFound(err)
		})
	}
	taken := p.begin(t, 2, 1)
	p.reach(t, far, taken)
	check.OK(t, c.SpeakersAreHolders())
	if attach.HasTCX() {
		comesBack()
	}
	p.remove(t, far)
	next := p.begin(t, 1, 0)
	p.reach(t, next, taken)
	p.removeAll(t, next, taken, near)
}

// A PF goes down and up under its pods. Then it is renamed, for which it goes down as well. While it is down, the
// node reports that it hears nothing. Afterwards its pods speak again, a pod can begin, a zombie is fenced, and the
// guards hear. The sriov plugin cannot end a pod whose PF was renamed, but its DEL frees the address.
func TestGuestAPFThatChangesUnderItsPods(t *testing.T) {
	c := vf.New(t, 3)
	c.StartController()
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.5") // as many as pods
	p, host, n := podsOf(c, vf.SRIOV, vf.Delegated), c.LAN.Hosts[0], c.Nodes[0]
	pod, heard, far := p.add(t, 1, 0), p.add(t, 1, 1), p.add(t, 2, 0)
	both := func() {
		t.Helper()
		p.reach(t, pod, far)
		p.reach(t, far, pod)
	}
	deaf := func(want float64) {
		t.Helper()
		p.gauge(t, n, "fenceline_segment_deaf", map[string]string{"parent": namespaces.Parent}, want)
	}
	both()
	check.OK(t, host.SetUp(namespaces.Parent, false))
	deaf(1)
	check.OK(t, host.SetUp(namespaces.Parent, true))
	deaf(0)
	both()

	const other = "renamed0"
	rename := func(from, to string) {
		t.Helper()
		link := check.Value(host.Links().LinkByName(from))(t)
		check.OK(t, errors.Join(host.SetUp(from, false), host.Links().LinkSetName(link, to), host.SetUp(to, true)))
		vf.AwaitCarrier(t, host.Namespace, to)
	}
	rename(namespaces.Parent, other)
	back := sync.OnceFunc(func() { rename(other, namespaces.Parent) })
	t.Cleanup(back)
	both()
	p.parent = other
	begun := p.add(t, 1, 2)
	p.reach(t, begun, far)

	n.ShutAPI(true)
	check.OK(t, errors.Join(n.Fall(t.Context()), pod.Outlive(t.Context())))
	shout := newShout(t, pod, heard)
	p.parent = ""
	next := p.begin(t, 2, 1)
	check.That(t, next.Addr == pod.Addr, "the next pod has %s, want %s of the zombie", next.Addr, pod.Addr)
	p.reach(t, far, next)
	shout.stop()
	check.OK(t, c.SpeakersAreHolders())
	n.ShutAPI(false)
	check.OK(t, n.Rise(t.Context()))
	p.stillGuards(t, heard)

	t.Log("DEL while the PF has another name:", begun.Del(t.Context()))
	check.OK(t, errors.Join(c.LeasesAreLiving(t.Context(), v1alpha1.StateWarm), p.takeBack(begun), c.ForgetPod(t.Context(), begun.Pod)))
	back()
	p.removeAll(t, pod, heard, next, far)
	p.noGuards(t)
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
	p.removeAll(t, pod, far)
	check.OK(t, errors.Join(host.Links().LinkDel(bond), host.SetUp(namespaces.Parent, true)))
}
