// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package sources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/go-logr/logr/testr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/parent"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// node is a node with two pods, whose watch runs. victim asks for the gateway.
type node struct {
	ns, gateway, victim, attacker *network.Namespace
	kernel                        *bpf.Kernel
	parent                        int
	removed                       chan string
	asked                         chan []net.HardwareAddr
}

func newNode(t *testing.T) *node {
	n := &node{
		ns: network.New(t, "n"), gateway: network.New(t, "g"), victim: network.New(t, "v"), attacker: network.New(t, "a"),
		removed: make(chan string, 100), asked: make(chan []net.HardwareAddr, 100),
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
	n.parent = check.Value(n.ns.Index("p0"))(t)
	segments := n.observe(t)
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
			w := NewImpostors(ImpostorOptions{
				Session: "s", Links: finder,
				Entries: func() (all []*attachment.Entry) {
					for i, ns := range []*network.Namespace{n.victim, n.attacker} {
						all = append(all, &attachment.Entry{
							ContainerID: ns.Path(), Interface: "eth0", NetNS: ns.Path(), Phase: attachment.Bound, Session: "s", Settled: true,
							MAC: net.HardwareAddr{2, 0, 0, 0, 0, byte(i + 1)}.String(), Parent: "p0", ParentIndex: n.parent,
						})
					}
					return all
				},
				SourcesOf: func(uint32) bpf.Sources { return bpf.Sources{Mode: bpf.SourcesEnforce} },
				Gateways: func(*attachment.Entry) map[netip.Addr]net.HardwareAddr {
					return map[netip.Addr]net.HardwareAddr{router: n.heard(t)}
				},
				Ask: func(ctx context.Context, parent int, addr netip.Addr) ([]net.HardwareAddr, error) {
					seg, _ := segments.Get(parent)
					macs, err := seg.Answerers(ctx, addr)
					select {
					case n.asked <- macs:
					default:
					}
					return macs, err
				},
				Kill:     func(*attachment.Entry) error { return nil },
				Removed:  func(reason string) { n.removed <- reason },
				Reporter: event.Reporter{Events: events.NewFakeRecorder(100), Log: testr.New(t), Clock: clock.RealClock{}},
			})
			changes := &parent.Changes{
				Link: func(bool) {}, Address: func() {}, Pod: w.Changed, Missed: w.Missed, Log: testr.New(t), Clock: clock.RealClock{},
			}
			var listening sync.WaitGroup
			listening.Go(func() { check.OK(t, n.ns.Do(func() error { return changes.Run(ctx) })) })
			defer listening.Wait()
			w.Look(nil) // gives the namespaces their numbers
			close(looked)
			return w.Run(ctx)
		}))
	})
	<-looked
	return n
}

// router is the address of the gateway.
var router = netip.MustParseAddr("10.9.0.1")

// observe attaches the observer to the parent.
func (n *node) observe(t *testing.T) *segment.Segments {
	dir := t.TempDir()
	check.OK(t, unix.Mount("bpf", dir, "bpf", 0, ""))
	t.Cleanup(func() { check.OK(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	n.kernel = check.Value(bpf.Open(bpf.Options{Dir: filepath.Join(dir, "pins")}))(t)
	segments := segment.New(segment.Config{Kernel: segment.KernelOf(n.kernel), Log: testr.New(t)})
	check.OK(t, n.ns.Do(func() error { return check.Err(segments.Open(n.parent)) }))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { check.OK(t, segments.Run(ctx, nobody{})) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		check.OK(t, errors.Join(segments.Close(), n.kernel.Remove()))
	})
	return segments
}

// nobody holds an address.
type nobody struct{}

func (nobody) Holdings() []segment.Holding { return nil }
func (nobody) Fenced(bpf.Event)            {}
func (nobody) Met(segment.Conflict)        {}

// heard returns the MAC that last used the address of the gateway.
func (n *node) heard(t *testing.T) net.HardwareAddr {
	s, _, err := n.kernel.Sightings.Last(bpf.Key{Segment: uint32(n.parent), Addr: router})
	check.OK(t, err)
	return s.MAC
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
	for name, row := range map[string]struct {
		attack func(*testing.T, *network.Namespace) error
		left   int
	}{
		"it sets the MAC of the gateway": {func(t *testing.T, pod *network.Namespace) error {
			return pod.Links().LinkSetHardwareAddr(check.Value(pod.Links().LinkByName("eth0"))(t), macOf(gateway))
		}, 0},
		"it adds a second macvlan":         {macvlan(netlink.MACVLAN_MODE_BRIDGE), 1},
		"it adds a macvlan in mode source": {macvlan(netlink.MACVLAN_MODE_SOURCE), 1},
		"it goes on in a loop":             {takeAgain, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			check.Must(t, n.reaches(t), "the gateway does not answer before the attack")
			start := time.Now()
			check.OK(t, row.attack(t, n.attacker))
			check.Receive(t, patient, "a removal", n.removed)
			t.Logf("removed %s after the attack began", time.Since(start))
			check.That(t, n.reaches(t), "the victim does not reach the gateway")
			left := n.macvlans(t, n.attacker)
			check.Equal(t, len(left), row.left, "interfaces that are left:")
			for _, link := range left {
				check.Equal(t, link.Attrs().Name, "eth0", "the attacker has")
			}
		})
	}
}

// patient is how long a removal may take on a busy machine.
const patient = time.Minute

func (n *node) macvlans(t *testing.T, ns *network.Namespace) []netlink.Link {
	return slices.DeleteFunc(check.Value(ns.Links().LinkList())(t), func(l netlink.Link) bool { return l.Type() != "macvlan" })
}

// Seen: a pod with a macvlan of another plugin lost its own interface to one forged frame.
func TestAForgedFrameOfTheGatewayEndsNoPod(t *testing.T) {
	n := newNode(t)
	forged := macOf(other)
	link := &netlink.Macvlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.MACVLAN_MODE_BRIDGE}
	link.Name, link.ParentIndex, link.HardwareAddr, link.Flags = "net1", check.Value(n.victim.Index("eth0"))(t), forged, net.FlagUp
	check.OK(t, n.victim.Links().LinkAdd(link))
	check.Equal(t, len(check.Receive(t, patient, "the first question", n.asked)), 1, "answers:")
	port := check.Value(segment.OpenPort(n.gateway.Path(), "eth0", 0))(t)
	defer port.Close()
	for _, frame := range check.Value(frames.Announce(forged, router))(t) {
		check.OK(t, port.Send(frame))
	}
	check.Becomes(t, patient, "the forged frame was heard", func() bool { return bytes.Equal(n.heard(t), forged) })
	check.Equal(t, check.Receive(t, patient, "a question", n.asked)[0].String(), gateway, "the gateway answered by")
	check.Equal(t, len(n.removed), 0, "removed:")
	check.Equal(t, len(n.macvlans(t, n.victim)), 2, "interfaces of the pod:")
	check.That(t, n.reaches(t), "the pod does not reach the gateway")
}

// takeAgain takes the MAC of the gateway by each interface that is left, and makes more, until the pod has none.
func takeAgain(t *testing.T, pod *network.Namespace) error {
	links, start, made := pod.Links(), time.Now(), 0
	for time.Since(start) < patient {
		all, _ := links.LinkList() // an interface may go meanwhile
		left := slices.DeleteFunc(all, func(l netlink.Link) bool { return l.Type() != "macvlan" })
		if len(left) == 0 {
			return nil
		}
		for _, link := range left {
			_ = links.LinkSetHardwareAddr(link, macOf(gateway))
			if made < 50 {
				made++
				more := &netlink.Macvlan{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.MACVLAN_MODE_BRIDGE}
				more.Name, more.ParentIndex, more.Flags = fmt.Sprint("x", made), link.Attrs().Index, net.FlagUp
				_ = links.LinkAdd(more)
			}
		}
	}
	t.Error("the pod could go on")
	return nil
}

// The agent's container has no capability but those of the chart. A kernel before 5.11 needs one more, which
// the error names.
func TestTheCapabilitiesOfTheChartSuffice(t *testing.T) {
	numbers := map[string]uint{
		"BPF": unix.CAP_BPF, "PERFMON": unix.CAP_PERFMON, "NET_ADMIN": unix.CAP_NET_ADMIN, "NET_BROADCAST": unix.CAP_NET_BROADCAST,
		"NET_RAW": unix.CAP_NET_RAW, "SYS_ADMIN": unix.CAP_SYS_ADMIN, "DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE,
		"SYS_RESOURCE": unix.CAP_SYS_RESOURCE,
	}
	var values struct {
		Agent struct{ Capabilities []string }
	}
	check.OK(t, yaml.Unmarshal(check.Value(os.ReadFile("../../../charts/fenceline/values.yaml"))(t), &values))
	maps := t.TempDir()
	check.OK(t, unix.Mount("bpffs", maps, "bpf", 0, ""))
	t.Cleanup(func() { check.OK(t, unix.Unmount(maps, 0)) })
	start := func(capabilities []string) error {
		var data [2]unix.CapUserData
		for _, name := range capabilities {
			n, known := numbers[name]
			check.That(t, known, "capability %s has no number here", name)
			data[n/32].Effective |= 1 << (n % 32)
			data[n/32].Permitted |= 1 << (n % 32)
		}
		return network.New(t, "n").Do(func() error {
			if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]); err != nil {
				return err
			}
			k, err := bpf.Open(bpf.Options{Dir: maps})
			if err != nil {
				return err
			}
			defer k.Close()
			ctx, cancel := context.WithCancel(t.Context())
			var failures []string
			listens := parent.Changes{Missed: cancel, Clock: clock.RealClock{}, Log: funcr.New(func(_, args string) { failures = append(failures, args) }, funcr.Options{})}
			err = listens.Run(ctx)
			check.Equal(t, len(failures), 0, "failures of the changes %v:", failures)
			return errors.Join(err, k.PrepareGuards())
		})
	}
	err := start(values.Agent.Capabilities)
	if strings.HasPrefix(string(check.Value(os.ReadFile("/proc/sys/kernel/osrelease"))(t)), "5.10.") {
		check.Says(t, err, "locked memory", "agent.extraCapabilities={SYS_RESOURCE}")
		err = start(append(values.Agent.Capabilities, "SYS_RESOURCE"))
	}
	check.OK(t, err)
}
