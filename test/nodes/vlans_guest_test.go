// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package nodes_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
)

// claimKey is the key of all clusters of this package.
var claimKey = claim.Key([]byte("0123456789abcdef"))

// The agents make the subinterfaces of two VLANs. A pod has eth0 in one and net1 in the other, both
// with host links: probes, Services, DNS and NodePorts work on both, and replies leave where requests
// came. The VLANs stay apart: a pod of the same node has the same address in the other one.
func TestGuestAPodOnTwoVLANs(t *testing.T) {
	c, lan := newInGuest(t)
	v := vlans{T: t, Cluster: c, lan: lan}
	for _, n := range c.Nodes {
		n.Flags = []string{"--vlan-parents", namespaces.Parent}
		check.OK(t, n.KillAgent())
		check.OK(t, n.AwaitAgent(t.Context()))
	}
	blue, green := v.vlan("blue", 100, "10.100.0"), v.vlan("green", 200, "10.200.0")
	n := c.Nodes[0]
	pod, net1 := v.pod(n, "pod")
	far, farNet1 := v.pod(c.Nodes[1], "far")
	beside := attached(t, n, "beside", blue.plugin(), nodes.Wants("blue"))
	eth0At, net1At := netip.AddrPortFrom(pod.Addr, 8080), netip.AddrPortFrom(net1.Addr, 8080)
	for _, at := range []netip.AddrPort{eth0At, net1At} {
		pod.Echo(t, "tcp", at)
	}
	for protocol, port := range map[string]uint16{"tcp": 8080, "udp": 53} {
		beside.Echo(t, protocol, netip.AddrPortFrom(beside.Addr, port))
	}

	own, kernels := nodeAddress(1), netip.Addr{}
	knows(t, "a probe of eth0", n.Namespace, kernels, "tcp", eth0At, own)
	knows(t, "a probe of net1", n.Namespace, kernels, "tcp", net1At, own)
	service := netip.MustParseAddr("10.96.0.50")
	check.OK(t, n.Translate("tcp", netip.AddrPortFrom(service, 80), netip.AddrPortFrom(beside.Addr, 8080)))
	check.OK(t, n.Translate("udp", netip.AddrPortFrom(service, 53), netip.AddrPortFrom(beside.Addr, 53)))
	knows(t, "a Service", pod.Namespace, kernels, "tcp", netip.AddrPortFrom(service, 80), own)
	knows(t, "DNS", pod.Namespace, kernels, "udp", netip.AddrPortFrom(service, 53), own)
	outside := c.Host(netip.MustParsePrefix("192.0.2.9/24"))
	for port, at := range map[uint16]netip.AddrPort{30080: eth0At, 30081: net1At} {
		check.OK(t, n.Translate("tcp", netip.AddrPortFrom(own, port), at))
		knows(t, fmt.Sprintf("NodePort %d", port), outside.Namespace, kernels, "tcp", netip.AddrPortFrom(own, port), outside.Addr)
	}

	// Clients behind the router of each VLAN.
	knows(t, "a client behind the router of eth0", blue.router, blue.client, "tcp", eth0At, blue.client)
	knows(t, "a client behind the router of net1", green.router, green.client, "tcp", net1At, green.client)
	for _, at := range []netip.AddrPort{netip.AddrPortFrom(far.Addr, 8080), netip.AddrPortFrom(farNet1.Addr, 8080)} {
		far.Echo(t, "tcp", at)
	}
	knows(t, "the other node's pod by eth0", pod.Namespace, kernels, "tcp", netip.AddrPortFrom(far.Addr, 8080), pod.Addr)
	knows(t, "the other node's pod by net1", pod.Namespace, kernels, "tcp", netip.AddrPortFrom(farNet1.Addr, 8080), net1.Addr)

	// The same address in the other VLAN.
	check.OK(t, c.Create(t.Context(), &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "violet"}, Spec: v1alpha1.IPPoolSpec{
		Subnet: "10.100.0.0/24", IPs: []string{pod.Addr.String()}, Default: ptr.To(false), Network: "violet",
	}}))
	n.Make = func(p *corev1.Pod) (*nodes.Sandbox, error) {
		return n.NewSandboxOf(p, fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"violet","plugins":[{%s,"ipam":%s}]}`, green.plugin(), n.IPAM()), nil)
	}
	twin := started(t.Context(), t, n, "twin", nodes.Wants("violet"))
	check.Must(t, twin.Addr == pod.Addr, "the pod in the other VLAN has %s, want %s", twin.Addr, pod.Addr)
	check.OK(t, green.router.AddAddr(green.iface, netip.MustParsePrefix("10.100.0.2/24")))
	twin.Echo(t, "tcp", eth0At)
	knows(t, "the pod with the same address", green.router, kernels, "tcp", eth0At, netip.MustParseAddr("10.100.0.2"))
	knows(t, "the first pod, again", blue.router, blue.client, "tcp", eth0At, blue.client)
	v.stayApart(green, blue, beside)

	for _, s := range []*nodes.Sandbox{twin, beside, net1, pod, farNet1, far} {
		check.OK(t, s.Del(t.Context()))
	}
	c.Eventually(t, "all is given back", func() error { return c.LeasesAreLiving(t.Context()) })
}

// vlans are the VLANs of a cluster.
type vlans struct {
	*testing.T
	*nodes.Cluster
	lan network.LAN
}

// vlan is one of them, with its router and a client behind it.
type vlan struct {
	id     int
	router *network.Namespace
	iface  string // of the router
	client netip.Addr
}

// vlan makes the pool of a VLAN, and waits for its subinterfaces.
func (v vlans) vlan(name string, id int, prefix string) vlan {
	v.Helper()
	pool := v.NamedPool(name, prefix+".0/24", prefix+".20-"+prefix+".29")
	edit(v.Context(), v.T, v.Cluster, pool, func() {
		pool.Spec.Gateway, pool.Spec.Vlan, pool.Spec.Parents = ptr.To(prefix+".1"), ptr.To(int64(id)), []string{namespaces.Parent}
	})
	l := vlan{id: id, iface: fmt.Sprintf("eth0.%d", id), client: netip.AddrFrom4([4]byte{198, 51, 100, byte(id)})}
	l.router = v.lan.Host(v.T, "r"+name, "eth0")
	check.OK(v.T, l.router.AddChild("eth0", &netlink.Vlan{VlanId: id}, l.router, l.iface))
	check.OK(v.T, l.router.SetUp(l.iface, true))
	check.OK(v.T, l.router.AddAddr(l.iface, netip.MustParsePrefix(prefix+".1/24")))
	check.OK(v.T, l.router.AddAddr("lo", netip.PrefixFrom(l.client, 32)))
	for _, n := range v.Nodes {
		v.Eventually(v.T, "VLAN "+name+" of "+n.Name, func() error { _, err := n.Index(l.parent()); return err })
	}
	return l
}

func (l vlan) parent() string { return fmt.Sprintf("%s.%d", namespaces.Parent, l.id) }

func (l vlan) plugin() string {
	return fmt.Sprintf(`"type":"macvlan","mode":"bridge","master":%q`, l.parent())
}

// pod makes a pod with eth0 in the VLAN blue and net1 in the VLAN green.
func (v vlans) pod(n *nodes.Node, name string) (eth0, net1 *nodes.Sandbox) {
	v.Helper()
	eth0 = attached(v.T, n, name, vlan{id: 100}.plugin(), func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{
			v1alpha1.AnnotationPrefix + "ippools":   `[{"interface":"eth0","ipv4":["blue"]},{"interface":"net1","ipv4":["green"]}]`,
			v1alpha1.AnnotationPrefix + "host-link": "true",
		}
	})
	net1 = check.Value(eth0.SecondOf("net1", chainOf(n, vlan{id: 200}.plugin())))(v.T)
	check.OK(v.T, net1.Add(v.Context()))
	return eth0, net1
}

// stayApart sends an announcement and a claim for the address of a pod, first in another VLAN and
// then in its own. Only the frames in its own VLAN are heard.
func (v vlans) stayApart(other, own vlan, s *nodes.Sandbox) {
	v.Helper()
	token := check.Value(s.Node().Entries())(v.T)[s.Attachment()].Addresses[0].Token
	announce := func(l vlan) net.HardwareAddr {
		mac := check.Value(l.router.MAC(l.iface))(v.T)
		l.send(v.T, check.Value(frames.Announce(mac, s.Addr))(v.T)...)
		return mac
	}
	said := func(mac net.HardwareAddr) bool {
		return check.Value(s.Node().Said("audit", `"conflict"`, s.Addr.String(), mac.String()))(v.T)
	}
	stranger := announce(other)
	v.claim(other, s, token, token+1)
	conflict := announce(own)
	check.Becomes(v.T, patience, "the report of the conflict in the VLAN of the pod", func() bool { return said(conflict) })
	check.That(v.T, !said(stranger), "an announcement in the other VLAN is a conflict")
	v.claim(own, s, token, token+2)
	check.That(v.T, !slices.Contains(v.awaitAck(s, token+2), token+1), "a claim in the other VLAN was acked")
}

// claim sends a claim with a newer token for the address of a pod.
func (v vlans) claim(l vlan, s *nodes.Sandbox, token, newer uint64) {
	v.Helper()
	system := &corev1.Namespace{}
	check.OK(v.T, v.Get(v.Context(), client.ObjectKey{Name: "kube-system"}, system))
	f := claim.Frame{Flags: claim.Asks(token), Network: claim.Network(string(system.UID), ""), Addr: s.Addr, Token: newer}
	l.send(v.T, check.Value(f.Ethernet(slices.Repeat([]byte{0xff}, 6), check.Value(l.router.MAC(l.iface))(v.T), claimKey))(v.T))
}

// awaitAck waits for the ack of a token, and returns all tokens that were acked.
func (v vlans) awaitAck(s *nodes.Sandbox, token uint64) (acked []uint64) {
	v.Helper()
	v.Eventually(v.T, "the ack of "+s.Pod.Name, func() error {
		acked = nil
		for _, a := range capture.About(capture.Of(v.Frames.Frames(), "ack"), s.Addr) {
			acked = append(acked, check.Value(capture.Claim(a.Payload, claimKey))(v.T).Token)
		}
		if !slices.Contains(acked, token) {
			return fmt.Errorf("acks of %v", acked)
		}
		return nil
	})
	return acked
}

// send sends frames of the router.
func (l vlan) send(t *testing.T, all ...[]byte) {
	t.Helper()
	out := check.Value(segment.OpenPort(l.router.Path(), l.iface, 0))(t)
	for _, frame := range all {
		check.OK(t, out.Send(frame))
	}
	check.OK(t, out.Close())
}
