// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package nodes_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
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
	dark := c.Nodes[0]
	b := vlanBridge{t, c, lan, dark}
	b.build()
	p := b.start(c.Nodes[1], inBlue, inGreen, `"type":"bridge","bridge":"br0"`)

	// Whatever is not one segment is refused.
	b.refuses("trunk", "blue", `"type":"bridge","bridge":"br0","vlanTrunk":[{"id":100}]`, "is in several VLANs")
	b.refuses("by-hand", "blue", inGreen, "run ip link add link br0 name br0.200 up type vlan id 200; bridge vlan add dev br0 vid 200 self")
	b.refuses("inside", "blue", `"type":"bridge","bridge":"br0","vlan":300`, "VLAN 300 does not reach its port up0")
	check.OK(t, b.AddChild(filtering, &netlink.Vlan{VlanId: 200}, dark.Namespace, "br0.200"))
	check.OK(t, b.SetUp("br0.200", true))
	check.OK(t, b.Links().BridgeVlanAdd(b.link(filtering), 200, false, false, true, false))

	p.begin()

	// A machine on another port of the bridge answers the probes of its own node.
	b.machine("tap9", "10.100.0.40/24")
	b.refuses("conflict", "taken", inBlue, "")
	check.OK(t, b.DeleteLink("tap9"))

	p.endure()
	p.stayApart()
	p.finish()
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
