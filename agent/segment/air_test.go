// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
)

const parent = 7

var (
	parentMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	otherMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 2}  // parent of another node
	holderMAC = net.HardwareAddr{2, 0, 0, 0, 0, 11} // previous holder
	hostMAC   = net.HardwareAddr{2, 0, 0, 0, 0, 99} // foreign host

	addr4 = netip.MustParseAddr("192.0.2.11")
	addr6 = netip.MustParseAddr("2001:db8::11")

	canary4 = netip.MustParseAddr("192.0.2.1")

	testKey = claim.Key{1: 1}
)

// sent is one frame that left, and when.
type sent struct {
	after  time.Duration
	dst    net.HardwareAddr
	probe  *netip.Addr  // set for probes
	claim  *claim.Frame // set for claims
	marked bool
	port   bool // sent from a pod's interface
}

// air is a segment without a network: it records frames and lets hosts answer.
type air struct {
	t      *testing.T
	kernel *memKernel
	born   time.Time
	keys   []claim.Key

	mu      sync.Mutex
	frames  []sent
	carrier bool
	mute    bool // no host outside hears the frames
	shared  bool // hosts of the node are behind the parent
	gone    bool // the parent's device
	mac     net.HardwareAddr
	losses  uint32 // of the carrier
	jitter  float64
	// onProbe and onClaim are the hosts on the segment; unicast tells that the frame went to one MAC only.
	onProbe func(addr netip.Addr, dst net.HardwareAddr)
	onClaim func(claim.Frame, net.HardwareAddr)
	// onCanary, if not nil, answers for the canary.
	onCanary func()
	// portUp is when the links of pods come up.
	portUp <-chan struct{}
	// uplinks replaces the ports of the parent's bridge.
	uplinks func() (vid uint16, ports []int, err error)
}

// newAir returns an open segment on a fresh air, with an event loop that ends with the test.
func newAir(t *testing.T) (*air, *Segment) { t.Helper(); return newAirOf(t, &reports{}) }

func newAirOf(t *testing.T, holder Holder) (*air, *Segment) {
	t.Helper()
	a := &air{t: t, kernel: newMemKernel(), born: time.Now(), carrier: true, mac: parentMAC, keys: []claim.Key{testKey}}
	set := New(Config{Kernel: a.kernel.parts(), Log: testr.New(t)})
	set.openParent = func(int) (parentWire, error) { return a, nil }
	set.openPort = func(Announcement) (podPort, error) { return &airPort{a}, nil }
	set.jitter = a.jitters
	set.SetKeys(a.keys...)
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { check.Is(t, set.Run(ctx, holder), nil, "run:") })
	t.Cleanup(func() {
		cancel()
		run.Wait()
		check.Is(t, set.Close(), nil, "close:")
	})
	return a, check.Value(set.Open(parent))(t)
}

// bubble runs a subtest in a bubble of fake time.
func bubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func (a *air) Link() (PortLink, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return PortLink{}, bpf.ErrNoDevice
	}
	return PortLink{Name: "eth0", MAC: a.mac}, nil
}

func (a *air) jitters() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.jitter
}

func (a *air) setJitter(j float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.jitter = j
}

func (a *air) setCarrier(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.carrier && !on {
		a.losses++
	}
	a.carrier = on
}

func (a *air) setMAC(mac net.HardwareAddr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mac = mac
}

func (a *air) Carrier() (bool, uint32, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return false, 0, bpf.ErrNoDevice
	}
	return a.carrier, a.losses, nil
}

func (a *air) Uplinks() (uint16, []int, error) {
	if a.uplinks == nil {
		return 0, nil, nil
	}
	return a.uplinks()
}

func (a *air) Shared() (bool, error)           { return a.shared, nil }
func (a *air) Close() error                    { return nil }
func (a *air) Has(netip.Addr) (bool, error)    { return false, nil }
func (a *air) Join(netip.Addr) (func(), error) { return func() {}, nil }
func (a *air) SendProbe(frame []byte) error    { return a.record(frame, true, false) }
func (a *air) Send(frame []byte) error         { return a.record(frame, false, false) }

func (a *air) record(frame []byte, marked, port bool) error {
	s := sent{after: time.Since(a.born), dst: net.HardwareAddr(frame[:6]), marked: marked, port: port}
	if binary.BigEndian.Uint16(frame[12:14]) == claim.EtherType {
		f, err := capture.Claim(frame[14:], a.keys...)
		if err != nil {
			return err
		}
		s.claim = &f
	} else if addr, ok := probedAddr(frame); ok && addr == canary4 {
		a.answerAsCanary()
		return nil
	} else if ok {
		s.probe = &addr
	}
	a.mu.Lock()
	a.frames = append(a.frames, s)
	onProbe, onClaim := a.onProbe, a.onClaim
	a.mu.Unlock()
	if s.probe != nil && onProbe != nil {
		onProbe(*s.probe, s.dst)
	}
	if s.claim != nil && onClaim != nil {
		onClaim(*s.claim, s.dst)
	}
	return nil
}

// answerAsCanary answers a probe of the canary, unless nobody hears it. A router asks for others all
// the time.
func (a *air) answerAsCanary() {
	a.kernel.speak(key(canary4), otherMAC, bpf.KindARP)
	switch {
	case a.onCanary != nil:
		a.onCanary()
	case !a.mute:
		a.kernel.speak(key(canary4), otherMAC, bpf.KindARPReply)
	}
}

// list returns the frames that match.
func (a *air) list(match func(sent) bool) []sent {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []sent
	for _, s := range a.frames {
		if match(s) {
			out = append(out, s)
		}
	}
	return out
}

func isProbe(s sent) bool        { return s.probe != nil }
func isClaim(s sent) bool        { return s.claim != nil }
func isAnnouncement(s sent) bool { return s.port }

// airPort is a pod's interface on the air.
type airPort struct{ air *air }

func (p *airPort) WaitUp(ctx context.Context) error {
	if p.air.portUp == nil {
		return nil
	}
	select {
	case <-p.air.portUp:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *airPort) Send(frame []byte) error { return p.air.record(frame, false, true) }
func (p *airPort) Close() error            { return nil }

func key(addr netip.Addr) bpf.Key { return bpf.Key{Segment: parent, Addr: addr} }

// broadcast tells whether dst reaches more than one host.
func broadcast(dst net.HardwareAddr) bool { return dst[0]&1 == 1 }

// ipv6HeaderLen is the length of the header without extensions.
const ipv6HeaderLen = 40

// probedAddr returns the target if frame is an ARP probe or a neighbour solicitation from ::.
func probedAddr(frame []byte) (netip.Addr, bool) {
	var f ethernet.Frame
	if f.UnmarshalBinary(frame) != nil {
		return netip.Addr{}, false
	}
	switch f.EtherType {
	case ethernet.EtherTypeARP:
		var p arp.Packet
		if p.UnmarshalBinary(f.Payload) != nil || !p.SenderIP.IsUnspecified() {
			return netip.Addr{}, false
		}
		return p.TargetIP, true
	case ethernet.EtherTypeIPv6:
		m, err := ndp.ParseMessage(f.Payload[ipv6HeaderLen:])
		ns, ok := m.(*ndp.NeighborSolicitation)
		if err != nil || !ok {
			return netip.Addr{}, false
		}
		return ns.TargetAddress, true
	}
	return netip.Addr{}, false
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	check.Equal(t, got, want, "%s is", what)
}
