// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package nodes_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/vf"
)

// The bridge of the first node filters VLANs. Its uplink is a bond of the card; the second node has macvlans of a
// VLAN of its card.
const (
	filtering, bridgeUplink, card = "br0", "up0", "e1"
	inBlue, inGreen               = `"type":"bridge","bridge":"br0","vlan":100`, `"type":"bridge","bridge":"br0","vlan":200`
	besideBridge                  = `"type":"macvlan","mode":"bridge","master":"e1.100"`
)

// Two VLANs of a bridge are two segments. Each is reached by the interface of the VLAN on the bridge, which hears other
// nodes, other ports of the bridge and claims. A VLAN without a tag outside is reached by the uplink.
func TestGuestPodsInVLANsOfABridge(t *testing.T) {
	c, lan := newInGuest(t)
	c.StartController()
	dark, light := c.Nodes[0], c.Nodes[1]
	b := vlanBridge{t, c, lan, dark}
	b.build()
	for n, on := range map[*nodes.Node]string{dark: filtering, light: card} {
		n.Flags = []string{"--vlan-parents", on}
		check.OK(t, errors.Join(n.StopAgent(), n.StartAgent(), n.AwaitAgent(t.Context())))
	}
	blue := b.pool("blue", "10.100.0", "20-10.100.0.29", func(s *v1alpha1.IPPoolSpec) { s.GatewayCheck = ptr.To(true) })
	taken := b.pool("taken", "10.100.0", "40-10.100.0.40", nil)
	router, other := b.router("rblue", 100), b.router("rgreen", 200)
	for n, iface := range map[*nodes.Node]string{dark: "br0.100", light: "e1.100"} {
		c.Eventually(t, iface, func() error { _, err := n.Index(iface); return err })
		vf.AwaitCarrier(t, n.Namespace, iface)
	}

	// Whatever is not one segment is refused.
	says := func(what, plugin, says string) {
		t.Helper()
		dark.Make = func(p *corev1.Pod) (*nodes.Sandbox, error) { return dark.NewSandboxOf(p, alone(dark, plugin), nil) }
		s := empty(t.Context(), t, dark, what, nodes.Wants(blue.Name))
		err := s.Add(t.Context())
		check.That(t, err != nil && strings.Contains(err.Error(), says), "%s: ADD says %v, want %q", what, err, says)
		check.OK(t, s.Finish(t.Context()))
	}
	says("trunk", `"type":"bridge","bridge":"br0","vlanTrunk":[{"id":100}]`, "is in several VLANs")
	says("by-hand", inGreen, "run ip link add link br0 name br0.200 up type vlan id 200; bridge vlan add dev br0 vid 200 self")
	says("inside", `"type":"bridge","bridge":"br0","vlan":300`, "VLAN 300 does not reach its port up0")
	check.OK(t, b.AddChild(filtering, &netlink.Vlan{VlanId: 200}, dark.Namespace, "br0.200"))
	check.OK(t, b.SetUp("br0.200", true))
	check.OK(t, b.Links().BridgeVlanAdd(b.link(filtering), 200, false, false, true, false))

	first, sibling := b.pod(dark, "first", inBlue, nodes.Wants(blue.Name)), b.pod(dark, "sibling", inBlue, nodes.Wants(blue.Name))
	remote := b.pod(light, "remote", besideBridge, nodes.Wants(blue.Name))
	b.pool("green", "10.100.0", "20-10.100.0.29", func(s *v1alpha1.IPPoolSpec) {
		s.Vlan, s.Network, s.IPs = ptr.To(int64(200)), "green", []string{first.Addr.String()}
	})
	twin := b.pod(dark, "twin", inGreen, nodes.Wants("green"))
	check.Equal(t, twin.Addr, first.Addr, "the pod in the other VLAN has")
	b.pool("native", "10.1.0", "20-10.1.0.29", func(s *v1alpha1.IPPoolSpec) { s.Vlan, s.Parents = nil, []string{bridgeUplink} })
	native := b.pod(dark, "native", `"type":"bridge","bridge":"br0"`, nodes.Wants("native"))
	untagged := c.Host(netip.MustParsePrefix("10.1.0.1/24"))
	entries := check.Value(dark.Entries())(t)
	for s, parent := range map[*nodes.Sandbox]string{first: "br0.100", twin: "br0.200", native: bridgeUplink} {
		check.Equal(t, entries[s.Attachment()].Parent, parent, "the parent of %s is", s.Pod.Name)
	}
	all := map[*nodes.Sandbox]netip.AddrPort{}
	for _, s := range []*nodes.Sandbox{first, sibling, remote, twin, native} {
		all[s] = netip.AddrPortFrom(s.Addr, 8080)
		s.Echo(t, "tcp", all[s])
	}
	reach := func(when string) {
		t.Helper()
		gateway := netip.MustParseAddr("10.100.0.1")
		for _, to := range []*nodes.Sandbox{first, sibling, remote} {
			for _, from := range []*nodes.Sandbox{first, sibling, remote} {
				if from != to {
					knows(t, when+", "+to.Pod.Name+" from "+from.Pod.Name, from.Namespace, netip.Addr{}, "tcp", all[to], from.Addr)
				}
			}
			knows(t, when+", "+to.Pod.Name+" from the router", router.router, netip.Addr{}, "tcp", all[to], gateway)
		}
		knows(t, when+", the twin from its router", other.router, netip.Addr{}, "tcp", all[twin], gateway)
		knows(t, when+", a pod without a tag", untagged.Namespace, netip.Addr{}, "tcp", all[native], untagged.Addr)
	}
	reach("at first")

	// A machine on another port of the bridge answers the probes of its own node.
	b.machine("tap9", "10.100.0.40/24")
	s := empty(t.Context(), t, dark, "conflict", nodes.Wants(taken.Name))
	check.That(t, s.Add(t.Context()) != nil, "a pod has %s, the address of a machine on the bridge", s.Addr)
	check.OK(t, s.Finish(t.Context()))
	check.OK(t, b.DeleteLink("tap9"))

	var sent, refused atomic.Int64
	stop := check.Value(first.Cry(namespaces.PodInterface, remote.Addr, &sent, &refused))(t)
	check.Becomes(t, patience, "frames of a pod with another's address", func() bool { return sent.Load() >= 100 })
	stop()
	check.None(t, capture.From(capture.SpokenFor(c.Frames.Frames(), remote.Addr), first.MAC), "of a pod that lies, the switch sees")

	check.OK(t, errors.Join(dark.KillAgent(), dark.AwaitAgent(t.Context())))
	reach("after a restart of the agent")

	// Pods of the bridge keep its carrier. That of the uplink counts.
	cable := network.Port("v" + dark.Name)
	check.OK(t, lan.Switch.SetUp(cable, false))
	c.Eventually(t, "the end of the carrier", func() error {
		if l := b.link(bridgeUplink); l.Attrs().OperState == netlink.OperUp {
			return errors.New("it has one")
		}
		return nil
	})
	says("without-carrier", inBlue, "the parent has no carrier")
	check.OK(t, lan.Switch.SetUp(cable, true))
	vf.AwaitCarrier(t, dark.Namespace, bridgeUplink)
	reach("with its carrier again")

	b.zombie("own4", dark, inBlue, light, besideBridge, nodes.Wants)
	b.zombie("own6", dark, inBlue, light, besideBridge, nodes.WantsIPv6)
	b.zombie("mac4", light, besideBridge, dark, inBlue, nodes.Wants)
	reach("at last")
	vlans{t, c, lan}.stayApart(other, router, sibling)
	for s := range all {
		check.OK(t, s.Finish(t.Context()))
	}
	c.Eventually(t, "all is given back", func() error { return c.LeasesAreLiving(t.Context(), v1alpha1.StateQuarantined) })
}

// alone is the configuration of a network with Fenceline as the IPAM of a plugin.
func alone(n *nodes.Node, plugin string) []byte {
	return fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"underlay","plugins":[{%s,"ipam":%s}]}`, plugin, n.IPAM())
}

// vlanBridge is a node with a bridge that filters VLANs.
type vlanBridge struct {
	*testing.T
	*nodes.Cluster
	lan network.LAN
	*nodes.Node
}

// build makes the bridge, and plugs in a card of each node.
func (b vlanBridge) build() {
	b.Helper()
	for _, n := range b.Nodes {
		check.OK(b.T, n.Plug(card, nil, b.lan.Switch, network.Port("v"+n.Name), network.Bridge))
	}
	addBond(b.T, b.Namespace, bridgeUplink, netlink.BOND_MODE_ACTIVE_BACKUP, card)
	attrs, filters := netlink.NewLinkAttrs(), true
	attrs.Name, attrs.HardwareAddr = filtering, net.HardwareAddr{2, 0, 0, 0, 0, 0x17}
	check.OK(b.T, b.Links().LinkAdd(&netlink.Bridge{LinkAttrs: attrs, VlanFiltering: &filters}))
	check.OK(b.T, errors.Join(b.Replug(bridgeUplink, filtering), b.SetUp(filtering, true)))
	for _, vid := range []uint16{100, 200} {
		err := b.Links().BridgeVlanAdd(b.link(bridgeUplink), vid, false, false, false, true)
		check.Must(b.T, err == nil, "add VLAN %d to the uplink: %v", vid, err)
	}
}

func (b vlanBridge) link(name string) netlink.Link {
	b.Helper()
	return check.Value(b.Links().LinkByName(name))(b.T)
}

// pool makes a pool in VLAN 100, with a gateway.
func (b vlanBridge) pool(name, prefix, ips string, change func(*v1alpha1.IPPoolSpec)) *v1alpha1.IPPool {
	b.Helper()
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{
		Subnet: prefix + ".0/24", IPs: []string{prefix + "." + ips}, Gateway: ptr.To(prefix + ".1"), Default: ptr.To(false),
		Vlan: ptr.To(int64(100)), Parents: []string{filtering, card},
	}}
	if change != nil {
		change(&pool.Spec)
	}
	check.OK(b.T, b.Create(b.Context(), pool))
	return pool
}

// router is a machine in a VLAN.
func (b vlanBridge) router(role string, id int) vlan {
	b.Helper()
	l := vlan{id: id, router: b.lan.Host(b.T, role, "eth0"), iface: fmt.Sprintf("eth0.%d", id)}
	check.OK(b.T, l.router.AddChild("eth0", &netlink.Vlan{VlanId: id}, l.router, l.iface))
	check.OK(b.T, l.router.SetUp(l.iface, true))
	check.OK(b.T, l.router.AddAddr(l.iface, netip.MustParsePrefix("10.100.0.1/24")))
	return l
}

// machine is one without Fenceline in VLAN 100 on another port of the bridge.
func (b vlanBridge) machine(port, addr string) {
	b.Helper()
	ns := network.New(b.T, "machine")
	check.OK(b.T, b.AddPair(port, ns, "eth0"))
	check.OK(b.T, errors.Join(b.Replug(port, filtering), b.SetUp(port, true), ns.SetUp("eth0", true), ns.AddAddr("eth0", netip.MustParsePrefix(addr))))
	links, link := b.Links(), b.link(port)
	check.OK(b.T, errors.Join(links.BridgeVlanDel(link, 1, true, true, false, true), links.BridgeVlanAdd(link, 100, true, true, false, true)))
}

func (b vlanBridge) pod(n *nodes.Node, name, plugin string, change func(*corev1.Pod)) *nodes.Sandbox {
	b.Helper()
	n.Make = func(p *corev1.Pod) (*nodes.Sandbox, error) { return n.NewSandboxOf(p, alone(n, plugin), nil) }
	return started(within(b.T, nodes.Limit), b.T, n, name, change)
}

// zombie has the address of a pod taken while the agent of its node is dead, for a pod of the other node.
func (b vlanBridge) zombie(name string, dead *nodes.Node, plugin string, other *nodes.Node, otherPlugin string, wants func(string) func(*corev1.Pod)) {
	b.Helper()
	ctx := b.Context()
	b.pool(name, "10.100.0", "50-10.100.0.50", func(s *v1alpha1.IPPoolSpec) {
		if strings.HasSuffix(name, "6") {
			s.Subnet, s.IPs, s.Gateway = "fd10::/64", []string{"fd10::50"}, nil
		}
		if strings.HasPrefix(name, "native") {
			s.Vlan, s.Parents, s.Gateway = nil, []string{bridgeUplink, card}, nil
		}
	})
	zombie := b.pod(dead, name, plugin, wants(name))
	check.OK(b.T, errors.Join(dead.KillAgent(), dead.Fall(ctx), zombie.Outlive(ctx)))
	next := b.pod(other, name+"-next", otherPlugin, wants(name))
	check.Equal(b.T, next.Addr, zombie.Addr, "the next pod has")
	b.Eventually(b.T, "the ack of "+name, func() error { return saidFenced(ctx, b.Cluster, next) })
	check.OK(b.T, errors.Join(dead.Rise(ctx), zombie.End(ctx), next.Finish(ctx)))
	b.Eventually(b.T, "the end of the lease", func() error {
		_, err := b.Lease(ctx, next.Addr)
		if err == nil {
			return fmt.Errorf("%s has a lease", next.Addr)
		}
		return nil
	})
	check.OK(b.T, b.Delete(ctx, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}
