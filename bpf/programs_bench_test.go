// SPDX-License-Identifier: Apache-2.0

//go:build bench && kernel

package bpf

import (
	"math"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
)

// runs of a program per system call; a call's own cost vanishes among them.
const runsPerCall = 20000

// BenchmarkPrograms gives ns per packet through test runs. Compare with "empty": that much is the harness.
func BenchmarkPrograms(b *testing.B) {
	empty := check.Value(ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	}))(b)
	defer empty.Close()
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
	check.OK(b, k.SetSources(1, guarded(SourcesEnforce)))
	all("guarded")
	run("claim/not-held", observer["ingress"], signed(50, key(far4), keyA))
	run("claim/equal", observer["ingress"], signed(100, key(addr4), keyA))
	run("claim/old", observer["ingress"], signed(50, key(addr4), keyA))
	run("claim/forged", observer["ingress"], signed(200, key(addr4), keyC))
	run("claim/foreign", observer["ingress"], func() []byte {
		return claimFrame(b, claim.Frame{Network: otherNetwork, Addr: addr4, Token: 200}, broadcast, remoteMAC, keyA)
	}())
	check.OK(b, k.InstallLease(key(far6), Lease{}))
	run("ack", observer["ingress"], claimFrame(b, claim.Frame{
		Flags: claim.FlagAck, Network: network, Addr: far6, Token: 50,
	}, broadcast, remoteMAC, keyA))
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
