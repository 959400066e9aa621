// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package nodes_test

import (
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/vf"
)

// bridgePods are the pods of a bridge in two VLANs and without a tag, one of VLAN 100 on the other node, and what
// reaches them.
type bridgePods struct {
	vlanBridge
	light *nodes.Node
	// blue, green and plain are the plugins for VLAN 100, for VLAN 200 and for no tag.
	blue, green, plain string

	router, other vlan
	// untagged is a host outside all VLANs.
	untagged *namespaces.Host

	first, sibling, remote, twin, native *nodes.Sandbox
	entries                              map[string]attachment.Entry
	// serve is where each pod answers.
	serve map[*nodes.Sandbox]netip.AddrPort
}

// start makes pools and routers, and waits for the VLANs that the agents make on the bridge and on the card of the
// other node.
func (b vlanBridge) start(light *nodes.Node, blue, green, plain string) *bridgePods {
	b.Helper()
	for n, on := range map[*nodes.Node]string{b.Node: filtering, light: card} {
		n.Flags = []string{"--vlan-parents", on}
		check.OK(b.T, errors.Join(n.StopAgent(), n.StartAgent(), n.AwaitAgent(b.Context())))
	}
	b.pool("blue", "10.100.0", "20-10.100.0.29", func(s *v1alpha1.IPPoolSpec) { s.GatewayCheck = ptr.To(true) })
	b.pool("taken", "10.100.0", "40-10.100.0.40", nil)
	p := &bridgePods{vlanBridge: b, light: light, blue: blue, green: green, plain: plain, router: b.router("rblue", 100), other: b.router("rgreen", 200)}
	for n, iface := range map[*nodes.Node]string{b.Node: "br0.100", light: "e1.100"} {
		b.Eventually(b.T, iface, func() error { _, err := n.Index(iface); return err })
		vf.AwaitCarrier(b.T, n.Namespace, iface)
	}
	return p
}

// refuses fails the test unless an ADD of the bridge's node fails and says this.
func (b vlanBridge) refuses(what, pool, plugin, says string) {
	b.Helper()
	b.Make = func(p *corev1.Pod) (*nodes.Sandbox, error) { return b.NewSandboxOf(p, alone(b.Node, plugin), nil) }
	s := empty(b.Context(), b.T, b.Node, what, nodes.Wants(pool))
	err := s.Add(b.Context())
	check.That(b.T, err != nil && strings.Contains(err.Error(), says), "%s: ADD says %v and gives %s, want %q", what, err, s.Addr, says)
	check.OK(b.T, s.Finish(b.Context()))
}

// begin starts the pods. Those of the two VLANs have one address in common.
func (p *bridgePods) begin() {
	p.Helper()
	p.first, p.sibling = p.pod(p.Node, "first", p.blue, nodes.Wants("blue")), p.pod(p.Node, "sibling", p.blue, nodes.Wants("blue"))
	p.remote = p.pod(p.light, "remote", besideBridge, nodes.Wants("blue"))
	p.pool("green", "10.100.0", "20-10.100.0.29", func(s *v1alpha1.IPPoolSpec) {
		s.Vlan, s.Network, s.IPs = ptr.To(int64(200)), "green", []string{p.first.Addr.String()}
	})
	p.twin = p.pod(p.Node, "twin", p.green, nodes.Wants("green"))
	check.Equal(p.T, p.twin.Addr, p.first.Addr, "the pod in the other VLAN has")
	p.pool("native", "10.1.0", "20-10.1.0.29", func(s *v1alpha1.IPPoolSpec) { s.Vlan, s.Parents = nil, []string{bridgeUplink} })
	p.native = p.pod(p.Node, "native", p.plain, nodes.Wants("native"))
	p.untagged = p.Host(netip.MustParsePrefix("10.1.0.1/24"))
	p.entries = check.Value(p.Entries())(p.T)
	for s, parent := range map[*nodes.Sandbox]string{p.first: "br0.100", p.twin: "br0.200", p.native: bridgeUplink} {
		check.Equal(p.T, p.entries[s.Attachment()].Parent, parent, "the parent of %s is", s.Pod.Name)
	}
	p.serve = map[*nodes.Sandbox]netip.AddrPort{}
	for _, s := range []*nodes.Sandbox{p.first, p.sibling, p.remote, p.twin, p.native} {
		p.serve[s] = netip.AddrPortFrom(s.Addr, 8080)
		s.Echo(p.T, "tcp", p.serve[s])
	}
	p.reach("at first")
}

func (p *bridgePods) reach(when string) {
	p.Helper()
	gateway := netip.MustParseAddr("10.100.0.1")
	for _, to := range []*nodes.Sandbox{p.first, p.sibling, p.remote} {
		for _, from := range []*nodes.Sandbox{p.first, p.sibling, p.remote} {
			if from != to {
				knows(p.T, when+", "+to.Pod.Name+" from "+from.Pod.Name, from.Namespace, netip.Addr{}, "tcp", p.serve[to], from.Addr)
			}
		}
		knows(p.T, when+", "+to.Pod.Name+" from the router", p.router.router, netip.Addr{}, "tcp", p.serve[to], gateway)
	}
	knows(p.T, when+", the twin from its router", p.other.router, netip.Addr{}, "tcp", p.serve[p.twin], gateway)
	knows(p.T, when+", a pod without a tag", p.untagged.Namespace, netip.Addr{}, "tcp", p.serve[p.native], p.untagged.Addr)
}

// endure has a pod lie, the agent restart, and the uplink lose its carrier. Zombies of both nodes are fenced.
func (p *bridgePods) endure() {
	p.Helper()
	var sent, refused atomic.Int64
	stop := check.Value(p.first.Cry(namespaces.PodInterface, p.remote.Addr, &sent, &refused))(p.T)
	check.Becomes(p.T, patience, "frames of a pod with another's address", func() bool { return sent.Load() >= 100 })
	stop()
	check.None(p.T, capture.From(capture.SpokenFor(p.Frames.Frames(), p.remote.Addr), p.first.MAC), "of a pod that lies, the switch sees")

	check.OK(p.T, errors.Join(p.KillAgent(), p.AwaitAgent(p.Context())))
	p.reach("after a restart of the agent")

	// Pods of the bridge keep its carrier. That of the uplink counts.
	cable := network.Port("v" + p.Node.Name)
	check.OK(p.T, p.lan.Switch.SetUp(cable, false))
	p.Eventually(p.T, "the end of the carrier", func() error {
		if l := p.link(bridgeUplink); l.Attrs().OperState == netlink.OperUp {
			return errors.New("it has one")
		}
		return nil
	})
	p.refuses("without-carrier", "blue", p.blue, "the parent has no carrier")
	check.OK(p.T, p.lan.Switch.SetUp(cable, true))
	vf.AwaitCarrier(p.T, p.Node.Namespace, bridgeUplink)
	p.reach("with its carrier again")

	p.zombie("own4", p.Node, p.blue, p.light, besideBridge, nodes.Wants)
	p.zombie("own6", p.Node, p.blue, p.light, besideBridge, nodes.WantsIPv6)
	p.zombie("mac4", p.light, besideBridge, p.Node, p.blue, nodes.Wants)
}

// stayApart has a claim in one VLAN fence nobody in the other one.
func (p *bridgePods) stayApart() {
	p.Helper()
	p.reach("at last")
	vlans{p.T, p.Cluster, p.lan}.stayApart(p.other, p.router, p.sibling)
}

func (p *bridgePods) finish() {
	p.Helper()
	for s := range p.serve {
		check.OK(p.T, s.Finish(p.Context()))
	}
	p.Eventually(p.T, "all is given back", func() error { return p.Cluster.LeasesAreLiving(p.Context(), v1alpha1.StateQuarantined) })
}
