// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package impostor

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// node is a node with two pods, whose watch runs. victim asks for the gateway.
type node struct {
	ns, gateway, victim, attacker *network.Namespace
	removed                       chan string
}

func newNode(t *testing.T) *node {
	n := &node{
		ns: network.New(t, "n"), gateway: network.New(t, "g"), victim: network.New(t, "v"), attacker: network.New(t, "a"),
		removed: make(chan string, 10),
	}
	check.OK(t, n.ns.AddPair("p0", n.gateway, "eth0"))
	check.OK(t, n.ns.SetUp("p0", true))
	check.OK(t, n.gateway.Links().LinkSetHardwareAddr(check.Value(n.gateway.Links().LinkByName("eth0"))(t), macOf(gateway)))
	check.OK(t, n.gateway.SetUp("eth0", true))
	check.OK(t, n.gateway.AddAddr("eth0", netip.MustParsePrefix("10.9.0.1/24")))
	for i, ns := range []*network.Namespace{n.victim, n.attacker} {
		check.OK(t, n.ns.AddMacvlan("p0", net.HardwareAddr{2, 0, 0, 0, 0, byte(i + 1)}, ns, "eth0"))
		check.OK(t, ns.SetUp("eth0", true))
		check.OK(t, ns.AddAddr("eth0", netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 2)}), 24)))
	}
	parent := check.Value(n.ns.Index("p0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	looked := make(chan struct{})
	running.Go(func() {
		check.OK(t, n.ns.Do(func() error {
			finder, err := pod.NewFinder()
			if err != nil {
				return err
			}
			defer finder.Close()
			changed, err := Changes(ctx, testr.New(t))
			if err != nil {
				return err
			}
			w := New(Options{
				Session: "s", Links: finder,
				Entries: func() (all []*journal.Entry) {
					for i, ns := range []*network.Namespace{n.victim, n.attacker} {
						all = append(all, &journal.Entry{
							ContainerID: ns.Path(), Interface: "eth0", NetNS: ns.Path(), Phase: journal.Bound, Session: "s", Settled: true,
							MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(i + 1)}.String(), Parent: "p0", ParentIndex: parent,
						})
					}
					return all
				},
				SourcesOf: func(uint32) bpf.Sources { return bpf.Sources{Mode: bpf.SourcesEnforce} },
				Gateways:  func(*journal.Entry) []net.HardwareAddr { return []net.HardwareAddr{macOf(gateway)} },
				Kill:      func(*journal.Entry) error { return nil },
				Removed:   func(reason string) { n.removed <- reason },
				Reporter:  event.Reporter{Events: events.NewFakeRecorder(100), Log: testr.New(t), Clock: clock.RealClock{}},
			}, changed)
			w.Look(nil) // gives the namespaces their numbers
			close(looked)
			return w.Run(ctx)
		}))
	})
	<-looked
	return n
}

// reaches reports whether the victim gets an answer of the gateway within ten seconds.
func (n *node) reaches(t *testing.T) bool {
	t.Helper()
	return n.victim.Command(t.Context(), "ping", "-q", "-i", "0.2", "-c", "1", "-w", "10", "10.9.0.1").Run() == nil
}

// Without the watch, each of these attacks cuts the victim off for as long as the attacker wants.
func TestThePodsBesideAnImpostorKeepTheirGateway(t *testing.T) {
	macvlan := func(mode netlink.MacvlanMode) func(*testing.T, *network.Namespace) error {
		return func(t *testing.T, pod *network.Namespace) error {
			link := &netlink.Macvlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: mode}
			link.Name, link.ParentIndex, link.HardwareAddr = "x", check.Value(pod.Index("eth0"))(t), macOf(gateway)
			link.Flags = net.FlagUp
			if mode == netlink.MACVLAN_MODE_SOURCE {
				link.HardwareAddr = nil
			}
			if err := pod.Links().LinkAdd(link); err != nil || mode != netlink.MACVLAN_MODE_SOURCE {
				return err
			}
			_ = pod.Links().MacvlanMACAddrAdd(link, macOf(gateway)) // it may be gone already
			return nil
		}
	}
	for name, attack := range map[string]func(*testing.T, *network.Namespace) error{
		"it sets the MAC of the gateway": func(t *testing.T, pod *network.Namespace) error {
			return pod.Links().LinkSetHardwareAddr(check.Value(pod.Links().LinkByName("eth0"))(t), macOf(gateway))
		},
		"it adds a second macvlan":         macvlan(netlink.MACVLAN_MODE_BRIDGE),
		"it adds a macvlan in mode source": macvlan(netlink.MACVLAN_MODE_SOURCE),
		"it goes on in a loop":             loop,
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			check.Must(t, n.reaches(t), "the gateway does not answer before the attack")
			start := time.Now()
			check.OK(t, attack(t, n.attacker))
			select {
			case <-n.removed:
				t.Logf("removed %s after the attack began", time.Since(start))
			case <-time.After(4 * time.Second):
				t.Error("the agent has removed nothing")
			}
			check.That(t, n.reaches(t), "the victim does not reach the gateway")
			for _, link := range check.Value(n.attacker.Links().LinkList())(t) {
				check.That(t, link.Type() != "macvlan", "the attacker has %s", link.Attrs().Name)
			}
		})
	}
}

// loop sets the MAC again and again, and makes more interfaces, until the pod has none.
func loop(t *testing.T, pod *network.Namespace) error {
	links := pod.Links()
	link := check.Value(links.LinkByName("eth0"))(t)
	for i := range 2000 {
		more := &netlink.Macvlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.MACVLAN_MODE_BRIDGE}
		more.ParentIndex = link.Attrs().Index
		more.Name = "x" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26))
		if links.LinkSetHardwareAddr(link, macOf(gateway)) == nil {
			_ = links.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0, 0, 0, 0, 2})
			continue
		}
		if gone := links.LinkAdd(more); gone != nil {
			t.Log("the pod has no interface left:", gone)
			return nil
		}
	}
	t.Error("the pod could go on")
	return nil
}

// The agent's container has no capability but those of the chart.
func TestTheCapabilitiesOfTheChartSufficeForChanges(t *testing.T) {
	numbers := map[string]uint{
		"BPF": unix.CAP_BPF, "PERFMON": unix.CAP_PERFMON, "NET_ADMIN": unix.CAP_NET_ADMIN, "NET_BROADCAST": unix.CAP_NET_BROADCAST,
		"NET_RAW": unix.CAP_NET_RAW, "SYS_ADMIN": unix.CAP_SYS_ADMIN, "DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE,
	}
	var values struct {
		Agent struct{ Capabilities []string }
	}
	check.OK(t, yaml.Unmarshal(check.Value(os.ReadFile("../../../charts/fenceline/values.yaml"))(t), &values))
	var data [2]unix.CapUserData
	for _, name := range values.Agent.Capabilities {
		n, known := numbers[name]
		check.That(t, known, "capability %s has no number here", name)
		data[n/32].Effective |= 1 << (n % 32)
		data[n/32].Permitted |= 1 << (n % 32)
	}
	check.OK(t, network.New(t, "n").Do(func() error {
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]); err != nil {
			return err
		}
		_, err := Changes(t.Context(), testr.New(t))
		return err
	}))
}
