// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package nodes_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/internal/wholelist"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/process"
	"github.com/fenceline/fenceline/test/programs"
	"github.com/fenceline/fenceline/test/vf"
)

// The ports are made by ovs-cni.
const (
	onOVS    = `"type":"ovs","socket_file":"unix:` + wholelist.OVSSocket + `","bridge":"br0"`
	ovsBlue  = onOVS + `,"vlan":100`
	ovsGreen = onOVS + `,"vlan":200`
)

// Pods of the first node are ports of Open vSwitch: access ports of two VLANs, which have tags on its uplink, and a
// trunk whose untagged frames count. Pods of the second node are macvlans of the same VLANs.
func TestGuestPodsOnOpenVSwitch(t *testing.T) {
	c, lan := newInGuest(t)
	c.StartController()
	dark, light := c.Nodes[0], c.Nodes[1]
	b := vlanBridge{t, c, lan, dark}
	for _, n := range c.Nodes {
		check.OK(t, n.Plug(card, nil, lan.Switch, network.Port("v"+n.Name), network.Bridge))
	}
	addBond(t, dark.Namespace, bridgeUplink, netlink.BOND_MODE_ACTIVE_BACKUP, card)
	vsctl, crash := startOVS(t, dark)
	vsctl("add-br", filtering, "--", "add-port", filtering, bridgeUplink, "trunks=0,100,200", "--", "add-br", "br1")
	check.OK(t, dark.SetUp(filtering, true))
	says := func(what, plugin, says string) {
		t.Helper()
		dark.Make = func(p *corev1.Pod) (*nodes.Sandbox, error) { return dark.NewSandboxOf(p, alone(dark, plugin), nil) }
		s := empty(t.Context(), t, dark, what, nodes.Wants("blue"))
		err := s.Add(t.Context())
		check.That(t, err != nil && strings.Contains(err.Error(), says), "%s: ADD says %v, want %q", what, err, says)
		check.OK(t, s.Finish(t.Context()))
	}
	if !attach.HasTCX() {
		b.pool("blue", "10.100.0", "20-10.100.0.29", nil)
		says("without-tcx", ovsBlue, "use Linux 6.6 or newer")
		return
	}
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
	says("trunk", onOVS+`,"trunk":[{"id":100}]`, "has no VLAN for untagged frames")
	says("by-hand", ovsGreen, "ip link add link br0 name br0.200 up type vlan id 200")
	says("inside", onOVS+`,"vlan":300`, "VLAN 300 does not reach its port up0")
	says("without-uplink", strings.Replace(onOVS, "br0", "br1", 1), "bridge br1 has no port to the network")
	vsctl("add-port", filtering, "to-br1", "--", "set", "interface", "to-br1", "type=patch", "options:peer=to-br0")
	says("patch", ovsBlue, "port to-br1 of bridge br0 is of type patch")
	vsctl("del-port", "to-br1", "--", "set-fail-mode", filtering, "secure")
	says("controlled", ovsBlue, "forwards by the flows of a controller")
	vsctl("del-fail-mode", filtering)
	check.OK(t, b.AddChild(filtering, &netlink.Vlan{VlanId: 200}, dark.Namespace, "br0.200"))
	check.OK(t, b.SetUp("br0.200", true))

	first, sibling := b.pod(dark, "first", ovsBlue, nodes.Wants(blue.Name)), b.pod(dark, "sibling", ovsBlue, nodes.Wants(blue.Name))
	remote := b.pod(light, "remote", besideBridge, nodes.Wants(blue.Name))
	b.pool("green", "10.100.0", "20-10.100.0.29", func(s *v1alpha1.IPPoolSpec) {
		s.Vlan, s.Network, s.IPs = ptr.To(int64(200)), "green", []string{first.Addr.String()}
	})
	twin := b.pod(dark, "twin", ovsGreen, nodes.Wants("green"))
	check.Equal(t, twin.Addr, first.Addr, "the pod in the other VLAN has")
	b.pool("native", "10.1.0", "20-10.1.0.29", func(s *v1alpha1.IPPoolSpec) { s.Vlan, s.Parents = nil, []string{bridgeUplink} })
	native := b.pod(dark, "native", onOVS, nodes.Wants("native"))
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

	// A machine on another port of the VLAN answers the probes of its own node.
	machine := network.New(t, "machine")
	check.OK(t, b.AddPair("tap9", machine, "eth0"))
	check.OK(t, errors.Join(b.SetUp("tap9", true), machine.SetUp("eth0", true), machine.AddAddr("eth0", netip.MustParsePrefix("10.100.0.40/24"))))
	vsctl("add-port", filtering, "tap9", "tag=100")
	s := empty(t.Context(), t, dark, "conflict", nodes.Wants(taken.Name))
	check.That(t, s.Add(t.Context()) != nil, "a pod has %s, the address of a machine on the bridge", s.Addr)
	check.OK(t, s.Finish(t.Context()))
	vsctl("del-port", "tap9")
	// The bridge itself hears no probe that leaves by the uplink.
	b.pool("own", "10.1.0", "40-10.1.0.40", func(s *v1alpha1.IPPoolSpec) { s.Vlan, s.Parents = nil, []string{bridgeUplink} })
	check.OK(t, dark.AddAddr(filtering, netip.MustParsePrefix("10.1.0.40/24")))
	dark.Make = func(p *corev1.Pod) (*nodes.Sandbox, error) { return dark.NewSandboxOf(p, alone(dark, onOVS), nil) }
	s = empty(t.Context(), t, dark, "own", nodes.Wants("own"))
	check.That(t, s.Add(t.Context()) != nil, "a pod has %s, the address of the bridge", s.Addr)
	check.OK(t, s.Finish(t.Context()))

	var sent, refused atomic.Int64
	stop := check.Value(first.Cry(namespaces.PodInterface, remote.Addr, &sent, &refused))(t)
	check.Becomes(t, patience, "frames of a pod with another's address", func() bool { return sent.Load() >= 100 })
	stop()
	check.None(t, capture.From(capture.SpokenFor(c.Frames.Frames(), remote.Addr), first.MAC), "of a pod that lies, the switch sees")

	check.OK(t, errors.Join(dark.KillAgent(), dark.AwaitAgent(t.Context())))
	reach("after a restart of the agent")

	cable := network.Port("v" + dark.Name)
	check.OK(t, lan.Switch.SetUp(cable, false))
	c.Eventually(t, "the end of the carrier", func() error {
		if l := b.link(bridgeUplink); l.Attrs().OperState == netlink.OperUp {
			return errors.New("it has one")
		}
		return nil
	})
	says("without-carrier", ovsBlue, "the parent has no carrier")
	check.OK(t, lan.Switch.SetUp(cable, true))
	vf.AwaitCarrier(t, dark.Namespace, bridgeUplink)
	reach("with its carrier again")

	b.zombie("own4", dark, ovsBlue, light, besideBridge, nodes.Wants)
	b.zombie("own6", dark, ovsBlue, light, besideBridge, nodes.WantsIPv6)
	b.zombie("mac4", light, besideBridge, dark, ovsBlue, nodes.Wants)
	b.zombie("native4", dark, onOVS, light, `"type":"macvlan","mode":"bridge","master":"e1"`, nodes.Wants)
	reach("at last")
	v := vlans{t, c, lan}
	v.stayApart(other, router, sibling)
	// Without a tag on the uplink, the kernel hears and acks a claim without agent and daemon.
	check.OK(t, errors.Join(dark.KillAgent(), crash()))
	token := entries[native.Attachment()].Addresses[0].Token
	v.claim(vlan{router: untagged.Namespace, iface: namespaces.HostInterface}, native, token, token+1)
	v.awaitAck(native, token+1)
	check.OK(t, dark.AwaitAgent(t.Context()))
	for s := range all {
		check.OK(t, s.Finish(t.Context()))
	}
	c.Eventually(t, "all is given back", func() error { return c.LeasesAreLiving(t.Context(), v1alpha1.StateQuarantined) })
}

// startOVS starts the daemons of Open vSwitch on a node. It returns ovs-vsctl, and what ends the switch.
func startOVS(t *testing.T, n *nodes.Node) (vsctl func(...string), crash func() error) {
	t.Helper()
	dir, run := filepath.Join(programs.Dir(), "openvswitch"), filepath.Dir(wholelist.OVSSocket)
	check.OK(t, os.MkdirAll(run, 0o755))
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(context.Background(), filepath.Join(dir, "ld-linux-x86-64.so.2"), append([]string{"--library-path", dir, filepath.Join(dir, args[0])}, args[1:]...)...)
		cmd.Env = append(os.Environ(), "OVS_RUNDIR="+run, "OVS_LOGDIR="+run, "OVS_DBDIR="+run, "OVS_SYSCONFDIR="+run)
		return cmd
	}
	do := func(args ...string) {
		t.Helper()
		out, err := command(args...).CombinedOutput()
		check.Must(t, err == nil, "%s: %v: %s", strings.Join(args, " "), err, out)
	}
	start := func(args ...string) (p process.Process) {
		t.Helper()
		log := filepath.Join(run, args[0]+".log")
		check.OK(t, n.Do(func() (err error) {
			p, err = process.Start(args[0], command(args...), log)
			return err
		}))
		t.Cleanup(func() {
			check.OK(t, p.Kill(context.Background()))
			if t.Failed() {
				text, err := os.ReadFile(log)
				t.Logf("%s: %v\n%s", log, err, text)
			}
		})
		return p
	}
	database := filepath.Join(run, "conf.db")
	do("ovsdb-tool", "create", database, filepath.Join(dir, "vswitch.ovsschema"))
	start("ovsdb-server", database, "--remote=punix:"+wholelist.OVSSocket, "--unixctl="+filepath.Join(run, "db.ctl"))
	check.Eventually(t, patience, "the database of Open vSwitch", func() error { _, err := wholelist.OVS(); return err })
	do("ovs-vsctl", "--no-wait", "init")
	daemon := start("ovs-vswitchd", "--unixctl="+filepath.Join(run, "switch.ctl"))
	return func(args ...string) { t.Helper(); do(append([]string{"ovs-vsctl", "--timeout=60"}, args...)...) },
		func() error { return daemon.Kill(context.Background()) }
}
