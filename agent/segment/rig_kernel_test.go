// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

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
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/go-logr/logr/testr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

const rigNetwork = uint64(0x42)

// rig is a real small segment: a switch, nodes with macvlan pods, and foreign
// hosts, each in a network namespace of its own.
type rig struct {
	t       *testing.T
	bpffs   string
	lan     network.LAN
	network *network.Namespace // the switch
	ports   int
}

// node is one machine with its kernel programs and, while alive, its agent.
type node struct {
	rig    *rig
	name   string
	ns     *network.Namespace
	port   string // of the switch
	mac    net.HardwareAddr
	iface  string // the parent
	parent int    // its index
	pins   string
	slots  uint32

	kernel *bpf.Kernel
	set    *Segments
	seg    *Segment
	stop   func()

	mu        sync.Mutex
	holdings  []Holding
	fences    []bpf.Event
	conflicts []Conflict
	acks      []bpf.Event // seen by the event loop
	fenced    []bpf.Event
}

func newRig(t *testing.T) *rig {
	t.Helper()
	check.Must(t, os.Geteuid() == 0, "kernel tests need root")
	r := &rig{t: t, bpffs: t.TempDir()}
	check.OK(t, unix.Mount("bpf", r.bpffs, "bpf", 0, ""))
	t.Cleanup(func() { check.OK(t, unix.Unmount(r.bpffs, unix.MNT_DETACH)) })
	r.lan = network.NewLAN(t)
	r.network = r.lan.Switch
	return r
}

// plug connects ns with the switch and returns the port's name and the MAC of the interface p0.
func (r *rig) plug(ns *network.Namespace) (string, net.HardwareAddr) {
	r.t.Helper()
	r.ports++
	role := fmt.Sprint(r.ports)
	port := network.Port(role)
	mac := net.HardwareAddr{2, 0, 0, 0, 0, byte(r.ports)}
	if r.hasIPv6() {
		check.OK(r.t, ns.Do(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0) }))
	}
	r.lan.Plug(r.t, ns, "p0", mac, role)
	// A port forwards once the kernel's link watch has seen its carrier.
	check.Becomes(r.t, patience, "port "+port+" is up", func() bool { return isUp(r.t, r.network, port) && isUp(r.t, ns, "p0") })
	return port, mac
}

// hasIPv6 reports whether the kernel was started with IPv6.
func (r *rig) hasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}

func isUp(t *testing.T, ns *network.Namespace, name string) bool {
	t.Helper()
	return check.Value(ns.Links().LinkByName(name))(t).Attrs().OperState == netlink.OperUp
}

// addNode connects a node and starts its agent.
func (r *rig) addNode(name string) *node {
	r.t.Helper()
	n := r.connect(name)
	n.join("p0")
	return n
}

// connect connects a machine that is to be a node.
func (r *rig) connect(name string) *node {
	r.t.Helper()
	n := &node{rig: r, name: name, ns: network.New(r.t, name), pins: filepath.Join(r.bpffs, name)}
	n.port, n.mac = r.plug(n.ns)
	return n
}

// join makes an interface the node's parent and starts its agent.
func (n *node) join(parent string) {
	t := n.rig.t
	t.Helper()
	n.iface, n.parent = parent, check.Value(n.ns.Index(parent))(t)
	n.start()
	t.Cleanup(func() {
		n.kill()
		k := check.Value(bpf.Open(bpf.Options{Dir: n.pins}))(t)
		check.OK(t, k.Remove())
	})
}

// start starts the node's agent.
func (n *node) start() {
	t := n.rig.t
	t.Helper()
	n.kernel = check.Value(bpf.Open(bpf.Options{Dir: n.pins}))(t)
	key := bpf.ClaimKey(testKey)
	check.OK(t, n.kernel.SetKeys(&key, nil))
	check.OK(t, n.kernel.Leases.SetNetworks([]uint64{rigNetwork}))
	kernel := KernelOf(n.kernel)
	kernel.Events = witness{n.kernel, n}
	n.set = New(Config{Kernel: kernel, Log: testr.New(t)})
	n.set.SetKeys(testKey)
	check.OK(t, n.ns.Do(func() (err error) {
		n.seg, err = n.set.Open(n.parent)
		return err
	}))
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { check.Is(t, n.set.Run(ctx, n), nil, "agent of %s:", n.name) })
	n.stop = func() {
		cancel()
		run.Wait()
		check.OK(t, errors.Join(n.set.Close(), n.kernel.Close()))
	}
}

// kill ends the node's agent as a crash would: only what is pinned stays.
func (n *node) kill() {
	if n.stop != nil {
		n.stop()
		n.stop = nil
	}
}

func (n *node) note(fn func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fn()
}

func (n *node) Fenced(f bpf.Event) { n.note(func() { n.fences = append(n.fences, f) }) }

func (n *node) Met(c Conflict) { n.note(func() { n.conflicts = append(n.conflicts, c) }) }

func (n *node) Holdings() (all []Holding) {
	n.note(func() { all = n.holdings })
	return all
}

// verify runs a verification in the node's network namespace.
func (n *node) verify(v Verification) (Verdict, Evidence) {
	n.rig.t.Helper()
	var verdict Verdict
	var e Evidence
	check.OK(n.rig.t, n.ns.Do(func() (err error) {
		verdict, e, err = n.seg.Verify(n.rig.t.Context(), v)
		return err
	}))
	n.rig.t.Logf("%s: %s: %s", n.name, verdict, e)
	return verdict, e
}

// witness is the node's kernel; it keeps the events that the agent reads.
type witness struct {
	*bpf.Kernel
	node *node
}

func (w witness) ReadEvents(ctx context.Context, fn func(bpf.Event)) error {
	return w.Kernel.ReadEvents(ctx, func(ev bpf.Event) {
		switch ev.Type {
		case bpf.EventAck:
			w.node.note(func() { w.node.acks = append(w.node.acks, ev) })
		case bpf.EventFenced:
			w.node.note(func() { w.node.fenced = append(w.node.fenced, ev) })
		}
		fn(ev)
	})
}

func prefix(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(a, 24)
	}
	return netip.PrefixFrom(a, 64)
}

// patience is how long anything may take on a busy machine.
const patience = time.Minute

// mute drops what comes from a port, or forwards it again.
func (r *rig) mute(port string, on bool) {
	r.t.Helper()
	links := r.network.Links()
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: check.Value(links.LinkByName(port))(r.t).Attrs().Index, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0),
	}}
	if !on {
		check.OK(r.t, links.QdiscDel(qdisc))
		return
	}
	check.OK(r.t, links.QdiscAdd(qdisc))
	drop := check.Value(ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, int32(netlink.TC_ACT_SHOT)), asm.Return()},
	}))(r.t)
	defer drop.Close()
	check.OK(r.t, links.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: qdisc.LinkIndex, Parent: netlink.HANDLE_MIN_INGRESS, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd:          drop.FD(), Name: "mute", DirectAction: true,
	}))
}

// setForwarding makes a port of the switch forward, or swallow every frame while its carrier stays.
func (r *rig) setForwarding(port string, on bool) {
	r.t.Helper()
	links := r.network.Links()
	link := check.Value(links.LinkByName(port))(r.t)
	if !on {
		check.OK(r.t, links.LinkSetNoMaster(link))
		return
	}
	check.OK(r.t, links.LinkSetMaster(link, check.Value(links.LinkByName(network.Bridge))(r.t)))
}

// outgoing is what comes out of a port of the switch from the node behind it.
type outgoing struct {
	*capture.Capture
	port string
	// first and since are those of the last reset.
	first int
	since time.Time
}

// startCapture captures what the machine behind a port sends, until the test ends.
func startCapture(t *testing.T, ns *network.Namespace, port string) *outgoing {
	t.Helper()
	c := check.Value(capture.Start(ns, network.Bridge))(t)
	t.Cleanup(func() { check.Value(c.Stop())(t) })
	return &outgoing{Capture: c, port: port}
}

// list returns the frames that match, of those that came since the last reset.
func (o *outgoing) list(match func(capture.Frame) bool) (found []capture.Frame) {
	for _, f := range o.Frames()[o.first:] {
		if f.Port == o.port && !f.Time.Before(o.since) && match(f) {
			found = append(found, f)
		}
	}
	return found
}

// reset forgets what has come up to now, also what nobody has read yet.
func (o *outgoing) reset() { o.first, o.since = len(o.Frames()), time.Now() }

// from matches the frames of mac that speak for addr.
func from(mac net.HardwareAddr, addr netip.Addr) func(capture.Frame) bool {
	return func(f capture.Frame) bool { return bytes.Equal(f.Source, mac) && slices.Contains(f.Speaks, addr) }
}
