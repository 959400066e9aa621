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
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/internal/wholelist"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/process"
	"github.com/fenceline/fenceline/test/programs"
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
	dark := c.Nodes[0]
	b := vlanBridge{t, c, lan, dark}
	for _, n := range c.Nodes {
		check.OK(t, n.Plug(card, nil, lan.Switch, network.Port("v"+n.Name), network.Bridge))
	}
	addBond(t, dark.Namespace, bridgeUplink, netlink.BOND_MODE_ACTIVE_BACKUP, card)
	vsctl, crash := startOVS(t, dark)
	vsctl("add-br", filtering, "--", "add-port", filtering, bridgeUplink, "trunks=0,100,200", "--", "add-br", "br1")
	check.OK(t, dark.SetUp(filtering, true))
	if !attach.HasTCX() {
		b.pool("blue", "10.100.0", "20-10.100.0.29", nil)
		b.refuses("without-tcx", "blue", ovsBlue, "use Linux 6.6 or newer")
		return
	}
	p := b.start(c.Nodes[1], ovsBlue, ovsGreen, onOVS)

	// Whatever is not one segment is refused.
	b.refuses("trunk", "blue", onOVS+`,"trunk":[{"id":100}]`, "has no VLAN for untagged frames")
	b.refuses("by-hand", "blue", ovsGreen, "ip link add link br0 name br0.200 up type vlan id 200")
	b.refuses("inside", "blue", onOVS+`,"vlan":300`, "VLAN 300 does not reach its port up0")
	b.refuses("without-uplink", "blue", strings.Replace(onOVS, "br0", "br1", 1), "bridge br1 has no port to the network")
	vsctl("add-port", filtering, "to-br1", "--", "set", "interface", "to-br1", "type=patch", "options:peer=to-br0")
	b.refuses("patch", "blue", ovsBlue, "port to-br1 of bridge br0 is of type patch")
	vsctl("del-port", "to-br1", "--", "set-fail-mode", filtering, "secure")
	b.refuses("controlled", "blue", ovsBlue, "forwards by the flows of a controller")
	vsctl("del-fail-mode", filtering)
	check.OK(t, b.AddChild(filtering, &netlink.Vlan{VlanId: 200}, dark.Namespace, "br0.200"))
	check.OK(t, b.SetUp("br0.200", true))

	p.begin()

	// A machine on another port of the VLAN answers the probes of its own node.
	machine := network.New(t, "machine")
	check.OK(t, b.AddPair("tap9", machine, "eth0"))
	check.OK(t, errors.Join(b.SetUp("tap9", true), machine.SetUp("eth0", true), machine.AddAddr("eth0", netip.MustParsePrefix("10.100.0.40/24"))))
	vsctl("add-port", filtering, "tap9", "tag=100")
	b.refuses("conflict", "taken", ovsBlue, "")
	vsctl("del-port", "tap9")
	// The bridge itself hears no probe that leaves by the uplink.
	b.pool("own", "10.1.0", "40-10.1.0.40", func(s *v1alpha1.IPPoolSpec) { s.Vlan, s.Parents = nil, []string{bridgeUplink} })
	check.OK(t, dark.AddAddr(filtering, netip.MustParsePrefix("10.1.0.40/24")))
	b.refuses("own", "own", onOVS, "")

	p.endure()
	b.zombie("native4", dark, onOVS, p.light, `"type":"macvlan","mode":"bridge","master":"e1"`, nodes.Wants)
	p.stayApart()
	p.speaksOnWithout(crash)
	check.OK(t, dark.AwaitAgent(t.Context()))
	p.finish()
}

// speaksOnWithout ends agent and daemon. The kernel forwards by the flows that it has, hears claims, fences and acks: also
// those with a tag on the uplink, of a sender without a flow.
func (p *bridgePods) speaksOnWithout(daemon func() error) {
	p.Helper()
	answers := func(when string) {
		p.Helper()
		knows(p.T, when, p.router.router, netip.Addr{}, "tcp", p.serve[p.first], netip.MustParseAddr("10.100.0.1"))
	}
	answers("with the daemon")
	check.OK(p.T, errors.Join(p.KillAgent(), daemon()))
	answers("without the daemon")
	v := vlans{p.T, p.Cluster, p.lan}
	for s, by := range map[*nodes.Sandbox]vlan{
		p.native: {router: p.untagged.Namespace, iface: namespaces.HostInterface},
		p.first:  p.vlanBridge.router("rnew", 100),
	} {
		token := p.entries[s.Attachment()].Addresses[0].Token
		v.claim(by, s, token, token+1)
		v.awaitAck(s, token+1)
	}
	_, err := p.router.router.Connect(netip.Addr{}, "tcp", p.serve[p.first], tryLimit)
	check.That(p.T, err != nil, "a fenced pod answers")
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
