// SPDX-License-Identifier: Apache-2.0

//go:build bench && kernel

package bpf

import (
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
)

// slice is how long one pod sends. The pods take turns, so that the load of the machine meets all.
const slice = 200 * time.Millisecond

// BenchmarkTraffic sends from three pods in turns: of a node without any program, of a node with an empty
// program at each place, and of a node with guard, source guard and observer. It prints the medians of the
// rate and the CPU time of each, and their ratios, for small packets of UDP and for a stream of TCP.
func BenchmarkTraffic(b *testing.B) {
	r := newRig(b)
	r.guards()
	plain, empty := r.plain("plain", nobody4), r.plain("empty", vip4)
	r.attachEmpty(empty.node, "p0")
	r.attachEmpty(empty.pod, "eth0")
	r.ext.addAddr("p0", far4)
	pods := []*netns{plain.pod, empty.pod, r.pod}
	var senders []*sender
	for i, by := range []string{"udp4", "tcp4"} {
		for j, pod := range pods {
			senders = append(senders, r.sender(by, pod, netip.AddrPortFrom(far4, uint16(5001+len(pods)*i+j)).String()))
		}
	}
	for b.Loop() {
		for range figure.Size(10, 1) {
			for _, s := range senders {
				check.OK(b, s.send())
			}
		}
	}
	for i, name := range []string{"UDP", "TCP"} {
		of := senders[len(pods)*i : len(pods)*(i+1)]
		for j, what := range []string{"no program", "empty programs", "Fenceline"} {
			b.Logf("%s, %-15s %s", name, what+":", of[j])
		}
		figure.Report(b, name+" of a guarded pod, rate", figure.Median(of[2].rates)/figure.Median(of[0].rates), "× no program")
		figure.Report(b, name+" of a guarded pod, CPU a write", figure.Median(of[2].costs)/figure.Median(of[0].costs), "× no program")
		figure.Report(b, name+" of a guarded pod, CPU a write beside empty programs", figure.Median(of[2].costs)/figure.Median(of[1].costs), "× empty programs")
	}
}

// plainNode is a node without Fenceline, with one pod.
type plainNode struct{ node, pod *netns }

func (r *rig) plain(name string, addr netip.Addr) plainNode {
	node := r.wire.plug(name)
	pod := node.pod("p0", name+"-pod")
	pod.up("eth0")
	pod.addAddr("eth0", addr)
	return plainNode{node, pod}
}

// attachEmpty puts an empty program into both directions of a device.
func (r *rig) attachEmpty(ns *netns, device string) {
	r.t.Helper()
	program := newProgram(r.t, "empty", -1)
	for _, to := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		index := ns.index(device)
		ns.do(func() error {
			l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: program, Attach: to})
			if err == nil {
				r.t.Cleanup(func() { l.Close() })
			}
			return err
		})
	}
}

// sender is an open connection, and what was measured on it: writes per second, and nanoseconds of CPU
// for each.
type sender struct {
	conn         net.Conn
	data         []byte
	rates, costs []float64
}

// sender connects a pod with the stranger. Nobody reads what comes by UDP.
func (r *rig) sender(by string, from *netns, address string) *sender {
	s := &sender{data: make([]byte, 64)}
	r.ext.do(func() error {
		if by == "udp4" {
			c, err := net.ListenPacket(by, address)
			if err == nil {
				r.t.Cleanup(func() { c.Close() })
			}
			return err
		}
		s.data = make([]byte, 128<<10)
		l, err := net.Listen(by, address)
		if err == nil {
			r.t.Cleanup(func() { l.Close() })
			go discard(l)
		}
		return err
	})
	from.do(func() (err error) { s.conn, err = net.DialTimeout(by, address, 5*time.Second); return err })
	r.t.Cleanup(func() { s.conn.Close() })
	return s
}

func discard(l net.Listener) {
	c, err := l.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.Copy(io.Discard, c)
}

func (s *sender) send() error {
	began, used, writes := time.Now(), cpuTime(), 0
	for time.Since(began) < slice {
		for range 64 {
			if _, err := s.conn.Write(s.data); err != nil {
				return err
			}
		}
		writes += 64
	}
	s.rates = append(s.rates, float64(writes)/time.Since(began).Seconds())
	s.costs = append(s.costs, float64((cpuTime()-used).Nanoseconds())/float64(writes))
	return nil
}

func (s *sender) String() string {
	return fmt.Sprintf("p50 %9.0f writes of %d bytes a second, %6.0f ns of CPU each, %d slices",
		figure.Median(s.rates), len(s.data), figure.Median(s.costs), len(s.rates))
}

// cpuTime returns the CPU time of the process, which has both ends.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// runs of a program per system call; a call's own cost vanishes among them.
const runsPerCall = 20000

// BenchmarkPrograms gives ns per packet through test runs. Compare with "empty": that much is the harness.
func BenchmarkPrograms(b *testing.B) {
	empty := newProgram(b, "empty", -1)
	k := newBench(b, setup{})
	k.bind(addr4, 1)
	k.bind(addr6, 1)
	took := map[string]time.Duration{}
	run := func(name string, prog *ebpf.Program, frame []byte) {
		b.Run(name, func(b *testing.B) { took[name] = benchmark(b, prog, frame) })
	}
	guard, observer := k.guard, k.observer
	all := func(when string) {
		run(when+"/guard-egress/ipv4", guard["egress"], udpFrom(addr4))
		run(when+"/guard-egress/ipv6", guard["egress"], udpFrom(addr6))
		run(when+"/guard-egress/tcp", guard["egress"], fromPod4(6, make([]byte, 20)...))
		run(when+"/guard-egress/arp", guard["egress"], arpFrame(podMAC, addr4, far4))
		run(when+"/guard-egress/na", guard["egress"], naFrame(podMAC, addr6))
		run(when+"/guard-ingress/ipv4", guard["ingress"], udpTo(addr4, remoteMAC, far4))
		run(when+"/guard-ingress/ipv6", guard["ingress"], udpTo(addr6, remoteMAC, far6))
		run(when+"/guard-ingress/arp", guard["ingress"], arpFrame(remoteMAC, far4, addr4))
		run(when+"/observer-ingress/ipv4", observer["ingress"], udpTo(addr4, remoteMAC, far4))
		run(when+"/observer-ingress/ipv6", observer["ingress"], udpTo(addr6, remoteMAC, far6))
		run(when+"/observer-ingress/arp", observer["ingress"], arpFrame(remoteMAC, far4, addr4))
		run(when+"/observer-egress/ipv4", observer["egress"], udpFrom(addr4))
		run(when+"/observer-egress/node", observer["egress"], withSource(parentMAC, udpFrom(nobody4)))
		run(when+"/observer-egress/arp", observer["egress"], arpFrame(podMAC, addr4, far4))
	}
	signed := func(token uint64, addr Key, key ClaimKey) []byte {
		f := claim.Frame{Network: network, Addr: addr.Addr, Token: token}
		return claimFrame(b, f, broadcast, remoteMAC, key)
	}
	run("empty", empty, udpFrom(addr4))
	all("unfenced")
	check.OK(b, k.Sources.Set(1, guarded(SourcesEnforce)))
	all("guarded")
	check.OK(b, k.Sources.SetNodeAddresses([]netip.Addr{far4}))
	check.OK(b, k.Sources.SetTrusted(testSegment, []net.HardwareAddr{parentMAC}, true))
	run("exclusive/observer-egress/ipv4", observer["egress"], udpFrom(addr4))
	run("exclusive/observer-egress/node", observer["egress"], withSource(parentMAC, udpFrom(nobody4)))
	check.OK(b, k.Sources.SetTrusted(testSegment, nil, false))
	run("claim/not-held", observer["ingress"], signed(50, key(far4), keyA))
	run("claim/equal", observer["ingress"], signed(100, key(addr4), keyA))
	run("claim/old", observer["ingress"], signed(50, key(addr4), keyA))
	run("claim/forged", observer["ingress"], signed(200, key(addr4), keyC))
	foreign := claim.Frame{Network: otherNetwork, Addr: addr4, Token: 200}
	run("claim/foreign", observer["ingress"], claimFrame(b, foreign, broadcast, remoteMAC, keyA))
	check.OK(b, k.Leases.Install(key(far6), Lease{}))
	ack := claim.Frame{Flags: claim.FlagAck, Network: network, Addr: far6, Token: 50}
	run("ack", observer["ingress"], claimFrame(b, ack, broadcast, remoteMAC, keyA))
	k.bind(other4, 2)
	k.fence(other4) // something else on this node
	all("fenced-elsewhere")
	k.fence(addr4)
	// Verified and compared; at egress, where no ack takes the frame away from the next run.
	run("claim/newer", observer["egress"], signed(200, key(addr4), keyA))
	run("fenced/guard-egress/ipv4", guard["egress"], udpFrom(addr4))
	run("fenced/observer-egress/ipv4", observer["egress"], udpFrom(addr4))
	for _, name := range []string{"guarded/guard-egress/ipv4", "guarded/guard-ingress/ipv4", "guarded/observer-ingress/ipv4", "claim/newer"} {
		figure.Report(b, "program on a frame, "+name, float64((took[name] - took["empty"]).Nanoseconds()), "ns beside an empty one")
	}
	// The guard on the node's end, and the observer of the uplink.
	bridged := took["guarded/guard-egress/ipv4"] + took["guarded/observer-egress/ipv4"] - 2*took["empty"]
	figure.Report(b, "programs on a frame of a pod on a bridge", float64(bridged.Nanoseconds()), "ns beside empty ones", figure.AtMost(25))
}

// benchmark reports the fastest call: on a shared machine the mean is mostly about the others.
func benchmark(b *testing.B, prog *ebpf.Program, frame []byte) time.Duration {
	fastest := time.Duration(math.MaxInt64)
	for b.Loop() {
		_, per, err := prog.Benchmark(frame, runsPerCall, nil)
		check.OK(b, err)
		fastest = min(fastest, per)
	}
	b.ReportMetric(float64(fastest.Nanoseconds()), "ns/packet")
	return fastest
}
