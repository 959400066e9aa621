// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/check"
)

// storm is a host that sends one frame after the other. It waits for the program of a node, so that no
// queue of the machine overflows: the kernel would lose frames before any program sees them.
type storm struct {
	t      *testing.T
	socket int
	victim *node
	frames [][]byte
	// perSecond is the highest rate.
	perSecond int
	cancel    context.CancelFunc
	done      chan struct{}
	// stop works twice.
	stop func()
	// sent and lost count frames, and took is the time until the end.
	sent, lost uint64
	took       time.Duration
}

// stormBatch is the number of frames between two looks at the victim's counters.
const stormBatch = 512

// startStorm begins a storm of claims or ARP packets.
func (h *host) startStorm(t *testing.T, victim *node, perSecond int, frames [][]byte) *storm {
	t.Helper()
	s := &storm{t: t, victim: victim, frames: frames, perSecond: perSecond, done: make(chan struct{})}
	index := check.Value(h.ns.Index("p0"))(t)
	check.OK(t, h.ns.Do(func() (err error) {
		// Protocol 0: the socket receives nothing.
		if s.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return os.NewSyscallError("socket", err)
		}
		return os.NewSyscallError("bind", unix.Bind(s.socket, &unix.SockaddrLinklayer{Ifindex: index}))
	}))
	check.OK(t, os.NewSyscallError("PACKET_QDISC_BYPASS", unix.SetsockoptInt(s.socket, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)))
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel, s.stop = cancel, sync.OnceFunc(s.end)
	t.Cleanup(s.stop)
	go s.blow(ctx)
	return s
}

func (s *storm) blow(ctx context.Context) {
	defer close(s.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin, judgedBefore := time.Now(), s.judged()
	defer func() { s.took = time.Since(begin) }()
	for ctx.Err() == nil {
		for range stormBatch {
			err := unix.Send(s.socket, s.frames[s.sent%uint64(len(s.frames))], 0)
			switch {
			case errors.Is(err, unix.ENOBUFS):
				s.lost++
			case err != nil:
				s.t.Errorf("storm: %v", err)
				return
			}
			s.sent++
		}
		for waited := time.Now(); s.judged()-judgedBefore+s.lost+stormBatch/2 < s.sent; {
			if time.Since(waited) > time.Second {
				s.lost = s.sent - (s.judged() - judgedBefore)
			}
		}
		time.Sleep(time.Until(begin.Add(time.Duration(s.sent) * time.Second / time.Duration(s.perSecond))))
	}
}

// judged returns the number of claims and ARP packets that the victim's observer has seen at ingress.
func (s *storm) judged() uint64 {
	counters, err := s.victim.kernel.Counters()
	check.That(s.t, err == nil, "%v", err)
	return counters[bpf.Counter{Where: bpf.WhereObserverIngress, Result: bpf.ResultClaim}] +
		counters[bpf.Counter{Where: bpf.WhereObserverIngress, Result: bpf.ResultSighting}]
}

// end ends the storm and prints its figures.
func (s *storm) end() {
	s.t.Helper()
	s.cancel()
	<-s.done
	check.OK(s.t, unix.Close(s.socket))
	s.t.Logf("%d frames in %s, %.0f a second, %d of them lost on the way",
		s.sent, s.took.Round(time.Millisecond), float64(s.sent)/s.took.Seconds(), s.lost)
}

// blown waits until the storm has sent n frames more.
func (s *storm) blown(n uint64) {
	s.t.Helper()
	from := s.judged()
	check.Becomes(s.t, patience, "the storm goes on", func() bool { return s.judged() >= from+n })
}

// stormMAC returns the MAC of one of many hosts that do not exist.
func stormMAC(random *rand.Rand) net.HardwareAddr {
	mac := make(net.HardwareAddr, 6)
	binary.BigEndian.PutUint32(mac[2:], random.Uint32())
	mac[0] = 0x06
	return mac
}

// hostileClaims returns claims and acks for addr that no kernel may obey while the token of its lease
// is lease. Replayed ones have the signature of the cluster.
func hostileClaims(t *testing.T, addr netip.Addr, lease uint64) [][]byte {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var all [][]byte
	for i := range uint64(4096) {
		newer, older := lease+1+i<<20, lease-1-i%(lease-1)
		forger := testKey
		binary.BigEndian.PutUint64(forger[8:], random.Uint64()|1)
		f := claim.Frame{Network: rigNetwork, Addr: addr, Token: newer}
		key, spoil := testKey, func(b []byte) []byte { return b }
		switch i % 7 {
		case 0:
			key = forger
		case 1:
			f.Flags, key = claim.FlagAck, forger
		case 2:
			f.Token = older
		case 3:
			f.Token = lease
		case 4:
			f.Network++
		case 5:
			spoil = func(b []byte) []byte { return b[:len(b)-1-int(i%40)] }
		case 6:
			spoil = func(b []byte) []byte { b[14+39] ^= byte(1 + i%255); return b } // of the token
		}
		all = append(all, spoil(check.Value(f.Ethernet(ethernet.Broadcast, stormMAC(random), key))(t)))
	}
	return all
}

// stranger returns the address of one of many hosts that do not exist, none of them in 10.99.0.0/24.
func stranger(i uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 100 + byte(i>>16), byte(i >> 8), byte(i)})
}

// strangersARP returns requests and replies of as many strangers.
func strangersARP(t *testing.T, asked netip.Addr, n uint32) [][]byte {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4))
	var all [][]byte
	for i := range n {
		mac, op, target := stormMAC(random), arp.OperationRequest, stranger(random.Uint32N(n))
		switch i % 4 {
		case 0:
			op = arp.OperationReply
		case 1:
			target = asked
		}
		p := check.Value(arp.NewPacket(op, mac, stranger(i), ethernet.Broadcast, target))(t)
		f := ethernet.Frame{Destination: ethernet.Broadcast, Source: mac, EtherType: ethernet.EtherTypeARP, Payload: check.Value(p.MarshalBinary())(t)}
		all = append(all, check.Value(f.MarshalBinary())(t))
	}
	return all
}

func TestInAStormOfClaimsOnlyTheLegitimateOneActs(t *testing.T) {
	r := newRig(t)
	n1, n2 := r.addNode("node1"), r.addNode("node2")
	p := n2.addPod("pod", rig4, 100)
	p.hold(100)
	s := r.addHost("attacker").startStorm(t, n2, 100_000, hostileClaims(t, rig4, 100))
	s.blown(20_000)
	equal(t, "fenced by the storm", n2.isFenced(p), false)
	token := check.Value(p.state())(t).MaxToken
	check.That(t, token <= 100, "token %d of the storm counts as claimed", token)
	verdict, _ := n1.verify(p.takeover(200))
	equal(t, "verdict of a legitimate take-over", verdict, Fenced)
	equal(t, "fenced by the take-over", n2.isFenced(p), true)
	equal(t, "greatest token", check.Value(p.state())(t).MaxToken, 200)
	s.stop()
	n2.note(func() {
		for _, ev := range n2.fenced {
			equal(t, "token of a fence", ev.Token, 200)
		}
	})
}

// The storm has three times as many hosts as the kernel remembers (LRU map sightings). The watches of
// probes and the leases of pods are not among them.
func TestInAStormOfARPNoHitIsMissed(t *testing.T) {
	const remembered = 16384
	r := newRig(t)
	n := r.addNode("node1")
	p := n.addPod("pod", rig4, 100)
	used := netip.MustParseAddr("10.99.0.60")
	owner, thief := r.addHost("owner", used), r.addHost("thief")
	hosts := strangersARP(t, used, 3*remembered)
	before := heap()
	s := r.addHost("attacker").startStorm(t, n, 50_000, hosts)
	for range 5 {
		s.blown(remembered)
		answer := n.probe(used, params50)
		equal(t, "the answer to a probe is heard", answer.Conflict, true)
		equal(t, "its MAC", answer.MAC.String(), owner.mac.String())
		before := check.Value(p.state())(t).Hits
		thief.announce(t, rig4)
		check.Becomes(t, patience, "the thief is seen", func() bool { return check.Value(p.state())(t).Hits > before })
		equal(t, "its MAC", check.Value(p.state())(t).HitMAC.String(), thief.mac.String())
	}
	s.stop()
	known := 0
	for i := range uint32(len(hosts)) {
		if _, ok, err := n.kernel.Sightings.Last(n.seg.key(stranger(i))); ok {
			known++
		} else {
			check.OK(t, err)
		}
	}
	check.That(t, known != 0 && known <= remembered, "%d of %d hosts are known, want at most %d", known, len(hosts), remembered)
	// The agent keeps nothing of them: 20 bytes of each would be 1 MB.
	grown := heap() - before
	check.That(t, grown <= 1<<20, "the heap has grown by %d bytes in the storm", grown)
	t.Logf("%d of %d hosts are known; the heap has grown by %d bytes", known, len(hosts), heap()-before)
	runtime.KeepAlive(hosts)
}

// heap returns the bytes of all reachable objects.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
