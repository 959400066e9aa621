// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
)

const (
	// bridge has the pods of a node, and the way to the underlay as its port.
	bridge, uplink = "br0", "up0"
)

// onABridge makes a node's pods ports of a bridge, by the reference plugin. The uplink is no veth, as on a machine.
func onABridge(t *testing.T, n *nodes.Node) {
	t.Helper()
	check.OK(t, n.AddBridge(bridge))
	check.OK(t, n.AddChild(namespaces.Parent, &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_PASSTHRU}, n.Namespace, uplink))
	links := n.Links()
	port, br := check.Value(links.LinkByName(uplink))(t), check.Value(links.LinkByName(bridge))(t)
	check.OK(t, links.LinkSetMaster(port, br))
	check.OK(t, n.SetUp(uplink, true))
	// The observer of the parent would keep the frames from its child.
	n.Plugin = fmt.Sprintf(`"type":"bridge","bridge":%q`, bridge)
	check.OK(t, errors.Join(n.StopAgent(), n.RemovePins(), n.StartAgent(), n.AwaitAgent(t.Context())))
}

// Pods of one node are ports of a bridge, those of the other are macvlans. They share a segment and a pool. What
// holds for a macvlan holds for them: they reach each other, and survive an agent's restart; nobody in the pod
// removes the guard; a zombie is fenced by a claim while its agent is away, and acks it.
func TestPodsOnABridgeAreGuardedAtTheNodesEnd(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 2)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	both := c.NamedPool("both", "10.66.0.0/24", "10.66.0.30-10.66.0.31")
	own, own6 := c.NamedPool("own", "10.66.0.0/24", "10.66.0.20"), c.NamedPool("own6", "fd66::/64", "fd66::20")
	c.StartController()
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	host6 := netip.MustParsePrefix("fd66::1/64")
	check.OK(t, host.AddAddr(namespaces.HostInterface, host6))
	dark, light := c.Nodes[0], c.Nodes[1]
	onABridge(t, dark)
	// The bridge has an address of the pool, and hears no probe.
	taken := netip.MustParsePrefix("10.66.0.30/24")
	check.OK(t, dark.AddAddr(bridge, taken))
	other := started(ctx, t, dark, "other", nodes.Wants(both.Name))
	check.Equal(t, other.Addr.String(), "10.66.0.31", "beside the address of the bridge, the pod has")
	check.OK(t, other.Finish(ctx))
	out, err := dark.Command(ctx, "ip", "addr", "del", taken.String(), "dev", bridge).CombinedOutput()
	check.Must(t, err == nil, "take %s off the bridge: %v: %s", taken, err, out)
	conflict := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName("", taken.Addr())}}
	check.OK(t, client.IgnoreNotFound(c.Delete(ctx, conflict))) // it would be verified again after a while

	first, sibling := started(ctx, t, dark, "first", nil), started(ctx, t, dark, "sibling", nil)
	remote, six := started(ctx, t, light, "remote", nil), started(ctx, t, dark, "six", nodes.WantsIPv6(own6.Name))
	reach := func(when string) {
		t.Helper()
		for _, from := range []*nodes.Sandbox{first, sibling, remote} {
			for _, to := range []netip.Addr{first.Addr, sibling.Addr, remote.Addr, host.Addr} {
				out, err := from.Command(ctx, "ping", "-c", "1", "-w", "10", to.String()).CombinedOutput()
				check.That(t, err == nil, "%s, %s to %s: %v: %s", when, from.Pod.Name, to, err, out)
			}
		}
		out, err := host.Command(ctx, "ping", "-c", "1", "-w", "10", six.Addr.String()).CombinedOutput()
		check.That(t, err == nil, "%s, a host to %s: %v: %s", when, six.Addr, err, out)
	}
	reach("at first")
	entry := check.Value(dark.Entries())(t)[first.Attachment()]
	check.Equal(t, entry.Parent, uplink, "the parent is")
	ports := check.Value(dark.Ports(bridge))(t)
	check.That(t, strings.HasPrefix(ports[entry.NodeEnd], "veth"), "the guard is on ifindex %d, the ports are %v", entry.NodeEnd, ports)

	// Whatever a process with NET_ADMIN does in the pod, the guard stays.
	for _, args := range [][]string{{"qdisc", "del", "dev", "eth0", "clsact"}, {"filter", "del", "dev", "eth0", "egress"}} {
		_ = first.Command(ctx, "tc", args...).Run() // there is none
	}
	var sent, refused atomic.Int64
	stop := check.Value(first.Cry(namespaces.PodInterface, remote.Addr, &sent, &refused))(t)
	c.Eventually(t, "frames of the pod with another's address", func() error {
		if sent.Load() < 100 {
			return fmt.Errorf("%d sent", sent.Load())
		}
		return nil
	})
	stop()
	check.None(t, capture.From(capture.SpokenFor(c.Frames.Frames(), remote.Addr), first.MAC), "of a pod that lies, the switch sees")
	check.That(t, skips(t, first) == nil, "a pod on a bridge may have sockets that skip queues, which its guard sees")

	check.OK(t, errors.Join(dark.StopAgent(), dark.StartAgent(), dark.AwaitAgent(ctx)))
	reach("after a restart of the agent")

	// The agent of the zombie's node is away.
	zombie := started(ctx, t, dark, "old", nodes.Wants(own.Name))
	acks := func(of *nodes.Sandbox) int { return len(capture.About(capture.Of(c.Frames.Frames(), "ack"), of.Addr)) }
	before, before6 := acks(zombie), acks(six)
	t.Cleanup(check.Value(zombie.Cry(namespaces.PodInterface, zombie.Addr, &sent, &refused))(t))
	check.OK(t, errors.Join(dark.KillAgent(), dark.Fall(ctx), zombie.Outlive(ctx), six.Outlive(ctx)))
	next, next6 := started(ctx, t, light, "next", nodes.Wants(own.Name)), started(ctx, t, light, "next6", nodes.WantsIPv6(own6.Name))
	check.That(t, next.Addr == zombie.Addr && next6.Addr == six.Addr, "the next pods have %s and %s", next.Addr, next6.Addr)
	check.Becomes(t, nodes.Limit, "an ack of the claim of "+next.Addr.String()+" is captured", func() bool { return acks(zombie) > before })
	check.Becomes(t, nodes.Limit, "an ack of the claim of "+next6.Addr.String()+" is captured", func() bool { return acks(six) > before6 })
	check.OK(t, errors.Join(dark.StartAgent(), dark.AwaitAgent(ctx), dark.Rise(ctx), zombie.End(ctx), six.End(ctx)))
	six = next6
	reach("at last")
	for _, s := range []*nodes.Sandbox{first, sibling, remote, next, next6} {
		check.OK(t, s.Finish(ctx))
	}
	c.Eventually(t, "no guard is left", func() error {
		guards, err := dark.Guards()
		if err == nil && len(guards) > 0 {
			err = fmt.Errorf("guards %v", guards)
		}
		return err
	})
	c.Settles(ctx, t)
}

// bind does to a pod's interface what the launcher does for the bridge binding of KubeVirt. The guest is behind tap0.
func bind(ctx context.Context, t *testing.T, launcher *nodes.Sandbox) {
	t.Helper()
	for _, line := range []string{
		"link set eth0 down", "addr flush dev eth0", "link set eth0 name eth0-nic", "link set eth0-nic address 02:00:00:00:00:77",
		"link add k6t-eth0 type bridge", "link set eth0-nic master k6t-eth0", "link set tap0 master k6t-eth0",
		"link set eth0-nic up", "link set tap0 up", "link set k6t-eth0 up",
		// It keeps name, MAC and address for the pod's view; a dummy in KubeVirt.
		"link add eth0 address " + launcher.MAC.String() + " type bridge", "addr add " + launcher.Addr.String() + "/24 dev eth0",
	} {
		out, err := launcher.Command(ctx, "ip", strings.Fields(line)...).CombinedOutput()
		check.Must(t, err == nil, "ip %s: %v: %s", line, err, out)
	}
}

// A virtual machine owns the address of its pod, as with the bridge binding of KubeVirt: what the launcher does to
// the pod's interface is done here by hand, and a network namespace stands in for the guest. Nothing is lost, no
// MAC is an impostor's, and the guest is fenced as a pod is.
func TestAGuestBehindABridgeInItsPodOwnsTheAddress(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 2)
	own := c.NamedPool("own", "10.66.0.0/24", "10.66.0.20")
	c.StartController()
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	dark, light := c.Nodes[0], c.Nodes[1]
	onABridge(t, dark)
	launcher, guest := started(ctx, t, dark, "launcher", nodes.Wants(own.Name)), network.New(t, "guest")
	check.OK(t, launcher.AddPair("tap0", guest, namespaces.PodInterface))
	bind(ctx, t, launcher)
	out, err := guest.Command(ctx, "ip", "link", "set", "eth0", "address", launcher.MAC.String()).CombinedOutput()
	check.Must(t, err == nil, "set the MAC of the guest: %v: %s", err, out)
	check.OK(t, errors.Join(guest.SetUp(namespaces.PodInterface, true), guest.AddAddr(namespaces.PodInterface, netip.PrefixFrom(launcher.Addr, 24))))
	reach := func(when string) {
		t.Helper()
		out, err := guest.Command(ctx, "ping", "-c", "1", "-w", "10", host.Addr.String()).CombinedOutput()
		check.That(t, err == nil, "%s, the guest to a host: %v: %s", when, err, out)
	}
	reach("at first")
	check.OK(t, errors.Join(dark.StopAgent(), dark.StartAgent(), dark.AwaitAgent(ctx)))
	reach("after a restart of the agent")
	said := check.Value(dark.Said("a plugin has changed the MAC"))(t)
	check.That(t, !said, "the agent takes the new MAC of the pod's interface for the guest's")

	var sent, refused atomic.Int64
	t.Cleanup(check.Value(guest.Cry(namespaces.PodInterface, launcher.Addr, &sent, &refused))(t))
	check.OK(t, errors.Join(dark.KillAgent(), dark.Fall(ctx), launcher.Outlive(ctx)))
	next := started(ctx, t, light, "next", nodes.Wants(own.Name))
	check.Equal(t, next.Addr, launcher.Addr, "the next pod has")
	check.OK(t, errors.Join(dark.StartAgent(), dark.AwaitAgent(ctx), dark.Rise(ctx), launcher.End(ctx), next.Finish(ctx)))
	c.Settles(ctx, t)
}

// A veth that leads to no uplink is refused, and a bridge with the gateway's address, with the reason. Pods work with the
// other fields of the plugin.
func TestWhatABridgeMayBe(t *testing.T) {
	ctx, c := cluster(t, nodes.Limit, 1)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	n := c.Nodes[0]
	other := started(ctx, t, n, "other", nil)
	n.Plugin = `"type":"bridge","bridge":"br1"`
	says := func(name, want string) {
		t.Helper()
		s := empty(ctx, t, n, name, nil)
		err := s.Add(ctx)
		check.That(t, err != nil && strings.Contains(err.Error(), want), "ADD says %v, want %q", err, want)
		check.OK(t, s.End(ctx))
	}
	says("lonely", "bridge br1 has no port to the network")
	check.OK(t, other.Finish(ctx))
	onABridge(t, n)
	plain := n.Plugin
	n.Plugin = plain + `,"isGateway":true`
	says("gateway", "network underlay has isGateway or isDefaultGateway")
	for i, field := range []string{`,"hairpinMode":true`, `,"promiscMode":true`, `,"macspoofchk":true`} {
		n.Plugin = plain + field
		first, second := started(ctx, t, n, fmt.Sprint("first-", i), nil), started(ctx, t, n, fmt.Sprint("second-", i), nil)
		out, err := first.Command(ctx, "ping", "-c", "1", "-w", "10", second.Addr.String()).CombinedOutput()
		check.That(t, err == nil, "with %s, a pod to its sibling: %v: %s", field, err, out)
		check.OK(t, errors.Join(first.Finish(ctx), second.Finish(ctx)))
	}
	c.Settles(ctx, t)
}
