// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package nodes_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/programs"
	"github.com/fenceline/fenceline/test/vf"
)

// tryLimit is the time for one request.
const tryLimit = 3 * time.Second

// newInGuest makes two nodes of a guest, with the addresses 192.0.2.1 and .2 on their parents, which
// forward packets.
func newInGuest(t *testing.T) (*nodes.Cluster, network.LAN) {
	t.Helper()
	lan := network.NewLAN(t)
	var hosts []*network.Namespace
	for number := 1; number <= 2; number++ {
		host := lan.Host(t, namespaces.NodeName(number), namespaces.Parent, netip.PrefixFrom(nodeAddress(number), 24))
		check.OK(t, host.Forward())
		hosts = append(hosts, host)
	}
	return nodes.On(t, namespaces.On(t, programs.Dir(), lan, hosts...)), lan
}

func nodeAddress(number int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(number)}) }

// attached makes a pod by a reference plugin with some fields. Fenceline is chained to it.
func attached(t *testing.T, n *nodes.Node, name, plugin string, change ...func(*corev1.Pod)) *nodes.Sandbox {
	t.Helper()
	n.Make = func(pod *corev1.Pod) (*nodes.Sandbox, error) { return n.NewSandboxOf(pod, chainOf(n, plugin), nil) }
	ctx := within(t, nodes.Limit)
	return started(ctx, t, n, name, func(pod *corev1.Pod) {
		for _, c := range change {
			c(pod)
		}
	})
}

// chainOf is the configuration of a network: the fields of its plugin, and Fenceline behind it.
func chainOf(n *nodes.Node, plugin string) []byte {
	return fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"underlay","plugins":[{%s,"ipam":%s},%s]}`, plugin, n.IPAM(), n.Chained())
}

// knows fails the test unless a server answers, and knows the client by the wanted address.
func knows(t *testing.T, what string, from *network.Namespace, by netip.Addr, protocol string, to netip.AddrPort, want netip.Addr) {
	t.Helper()
	var got netip.Addr
	check.Eventually(t, patience, what, func() error {
		c, err := from.Connect(by, protocol, to, tryLimit)
		if err != nil {
			return err
		}
		defer c.Close()
		got, err = network.SourceOf(c, tryLimit)
		return err
	})
	check.Equal(t, got, want, "%s: the client is known as", what)
}

// All pods of a node have the MAC of the parent. A pod has all that a macvlan pod has. Its address
// is taken while its agent is dead. The claim asks for this holder by its token, so the pod beside
// it, with the same MAC, still speaks.
func TestGuestPodsOnIPVLAN(t *testing.T) {
	c, lan := newInGuest(t)
	c.StartController()
	c.NamedPool("one", "10.66.0.0/24", "10.66.0.20")
	c.NamedPool("others", "10.66.0.0/24", "10.66.0.30-10.66.0.39")
	outside := lan.Host(t, "outside", "eth0", netip.MustParsePrefix("10.66.0.1/24"))
	dark, light := c.Nodes[0], c.Nodes[1]
	const plugin = `"type":"ipvlan","mode":"l2","master":"` + namespaces.Parent + `"`
	zombie := attached(t, dark, "zombie", plugin, nodes.Wants("one"))
	beside := attached(t, dark, "beside", plugin, nodes.Wants("others"))
	far := attached(t, light, "far", plugin, nodes.Wants("others"))
	l := check.Value(c.Lease(t.Context(), zombie.Addr))(t)
	parent := check.Value(dark.MAC(namespaces.Parent))(t).String()
	check.List(t, []string{zombie.MAC.String(), beside.MAC.String(), l.Spec.Holder.MAC}, []string{parent, parent, parent}, "MACs of pods and lease")

	whole := func(s *nodes.Sandbox) {
		t.Helper()
		check.That(t, check.Value(s.Guarded())(t), "%s is not guarded", s.Addr)
		at := netip.AddrPortFrom(s.Addr, 8080)
		knows(t, "a probe", dark.Namespace, netip.Addr{}, "tcp", at, nodeAddress(1))
		knows(t, "the pod of the other node", far.Namespace, netip.Addr{}, "tcp", at, far.Addr)
		knows(t, "a host", outside, netip.Addr{}, "tcp", at, netip.MustParseAddr("10.66.0.1"))
	}
	for _, s := range []*nodes.Sandbox{zombie, beside} {
		s.Echo(t, "tcp", netip.AddrPortFrom(s.Addr, 8080))
		whole(s)
	}
	knows(t, "the pod beside", zombie.Namespace, netip.Addr{}, "tcp", netip.AddrPortFrom(beside.Addr, 8080), zombie.Addr)
	mute(t, zombie, beside.Addr)
	check.OK(t, dark.KillAgent())
	check.OK(t, dark.AwaitAgent(t.Context()))
	whole(zombie)
	mute(t, zombie, beside.Addr)

	token := check.Value(dark.Entries())(t)[zombie.Attachment()].Addresses[0].Token
	dark.ShutAPI(true)
	check.OK(t, errors.Join(dark.Fall(t.Context()), zombie.Outlive(t.Context())))
	next := attached(t, light, "next", plugin, nodes.Wants("one"))
	check.Equal(t, next.Addr, zombie.Addr, "the next pod has")
	c.Eventually(t, "the take-over was fenced", func() error { return saidFenced(t.Context(), c, next) })
	acks := capture.About(capture.Of(c.Frames.Frames(), "ack"), zombie.Addr)
	check.That(t, slices.ContainsFunc(acks, func(a capture.Frame) bool {
		f, err := capture.Claim(a.Payload, claimKey)
		return err == nil && f.Flags == claim.Asks(token)|claim.FlagAck && a.Source.String() == parent
	}), "no ack of the holder with the token %d: %v", token, acks)
	mute(t, zombie, zombie.Addr)
	next.Echo(t, "tcp", netip.AddrPortFrom(next.Addr, 8080))
	knows(t, "the next pod", outside, netip.Addr{}, "tcp", netip.AddrPortFrom(next.Addr, 8080), netip.MustParseAddr("10.66.0.1"))
	knows(t, "the next pod, from the pod beside the zombie", beside.Namespace, netip.Addr{}, "tcp", netip.AddrPortFrom(next.Addr, 8080), beside.Addr)
	whole(beside)

	dark.ShutAPI(false)
	check.OK(t, dark.Rise(t.Context()))
	for _, s := range []*nodes.Sandbox{zombie, beside, far, next} {
		check.OK(t, s.Finish(t.Context()))
	}
	c.Eventually(t, "all is given back", func() error { return c.LeasesAreLiving(t.Context()) })
}

// Like TestNothingIsLostWhereverADDAndDELBreakOff, with one VF for all pods. The agent is killed at
// each step. The VF serves the next pod at once, and no guard is left.
func TestGuestNothingIsLostWhereverAVFBreaksOff(t *testing.T) {
	c := vf.New(t, 1)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	n, card := c.Nodes[0], c.LAN.Hosts[0]
	function := check.Value(card.VFs())(t)[0]
	n.Make = func(pod *corev1.Pod) (*nodes.Sandbox, error) {
		var living []*network.Namespace
		for _, s := range c.Living() {
			living = append(living, s.Namespace)
		}
		if err := card.Collect(living...); err != nil {
			return nil, err
		}
		return c.NewSandbox(1, pod, function, vf.HostDevice, vf.Delegated)
	}
	w := &walk{Cluster: c.Cluster, n: n, host: c.Host(netip.MustParsePrefix("10.66.0.1/24")), once: true}
	killed := faults()[0]
	for _, v := range verbs() {
		for _, s := range v.steps {
			if v.kept {
				continue // its steps differ in the records only
			}
			if !t.Run(v.name+", "+s.name, func(t *testing.T) { w.in(t).play(v, s, killed) }) {
				return // the rows share the node
			}
		}
	}
	check.OK(t, card.Collect())
	check.Eventually(t, nodes.Limit, "the end of all leases and guards", func() error {
		if guards, err := n.Guards(); err != nil || len(guards) > 0 {
			return fmt.Errorf("guards %v are pinned: %w", guards, err)
		}
		return c.LeasesAreLiving(t.Context(), v1alpha1.StateRetained)
	})
	pf := check.Value(card.Links().LinkByName(namespaces.Parent))(t)
	info := pf.Attrs().Vfs[0]
	check.That(t, info.Vlan == 0 && info.LinkState == 0, "the PF restricts the VF still: %+v", info)
}
