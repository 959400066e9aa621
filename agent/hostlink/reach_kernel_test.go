// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package hostlink

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/go-logr/logr/testr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// reachRig is a node with a parent on the underlay, and a router between the underlay and the node network.
type reachRig struct {
	*testing.T
	v4           bool
	node, router *network.Namespace
	underlay     network.LAN
	pods         []*network.Namespace
	watch        *Reach
}

func TestANodeNoticesThatItDoesNotReachThePodsOfOthers(t *testing.T) {
	for name, v4 := range map[string]bool{"IPv4": true, "IPv6": false} {
		t.Run(name, func(t *testing.T) {
			r := newReachRig(t, v4)
			r.measure("the node reaches them", lasting, false)
			r.eachPod("refuse TCP", func(pod *network.Namespace) error { return pod.Links().RuleAdd(r.noTCP()) })
			r.measure("they answer echo requests alone", lasting, false)
			r.eachPod("admit TCP", func(pod *network.Namespace) error { return pod.Links().RuleDel(r.noTCP()) })
			for _, pod := range r.pods {
				r.set(pod, "ipv4/icmp_echo_ignore_all", "ipv6/icmp/echo_ignore_all", "1")
			}
			r.measure("they drop echo requests", lasting, false)
			r.forward("0")
			r.measure("the way is cut for four minutes", lasting-1, false)
			r.measure("and for five", 1, true)
			r.measure("and longer", 1, true)
			check.OK(t, r.underlay.Switch.SetUp(network.Port("pod1"), false))
			r.measure("one silent pod says nothing", 1, false)
			check.OK(t, r.underlay.Switch.SetUp(network.Port("pod1"), true))
			r.measure("both are silent again", lasting, true)
			r.forward("1")
			check.Becomes(t, time.Minute, "the way is open", func() bool { // a busy machine may hear an answer late
				check.OK(r, r.node.Do(func() error { r.watch.measure(r.Context()); return nil }))
				return r.watch.Fault(r.v4) == nil
			})
		})
	}
}

// The pod answers the question of its router by ARP, and asks the router later whether it is still there.
// Other nodes hear neither, so a question of this node does not bring two owners of an address together.
func TestAQuestionMakesAPodSpeakToItsRouterAlone(t *testing.T) {
	r := newReachRig(t, true)
	pod, addr := r.pods[1], r.prefix(2, 51).Addr() // the latest speaker is asked first
	r.set(pod, "ipv4/neigh/eth0/delay_first_probe_time", "", "1")
	r.watch.patience = 10 * time.Second // the time also limits how late an echo request may be sent
	frames := check.Value(capture.Start(r.underlay.Switch, network.Bridge))(t)
	spoken := func(kind string) bool { return len(capture.Of(capture.SpokenFor(frames.Frames(), addr), kind)) > 0 }
	check.Becomes(t, time.Minute, "an echo reply of the pod", func() bool {
		r.measure("the node asks", 1, false) // without an echo reply, a refused connection is the answer
		return spoken("IPv4 protocol 1")
	})
	router := check.Value(r.router.MAC("eth1"))(t)
	for _, kind := range []string{"ARP reply", "ARP request"} {
		check.Becomes(t, time.Minute, kind+" of the pod", func() bool { return spoken(kind) })
	}
	for _, f := range capture.SpokenFor(check.Value(frames.Stop())(t), addr) {
		check.That(t, f.Destination.String() == router.String(), "not to the router %s alone: %s", router, f)
	}
}

// The node has no route, so no pod answers it.
func TestAParentThatFailsHidesNoSilenceOnTheOthers(t *testing.T) {
	node, scheme := network.New(t, "node"), runtime.NewScheme()
	check.OK(t, v1alpha1.AddToScheme(scheme))
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.IPPoolSpec{Subnet: "10.0.2.0/24"}}
	own := attachment.Address{Addr: netip.MustParseAddr("10.0.2.60")}
	entry := func(parent int) *attachment.Entry {
		return &attachment.Entry{ParentIndex: parent, Routing: &attachment.Routing{HostLink: true, First: true}, Addresses: []attachment.Address{own}}
	}
	const down, up = 2, 3
	var failure error
	lines := 0
	w := NewReach(ReachOptions{
		Entries:       func() []*attachment.Entry { return []*attachment.Entry{entry(down), entry(up)} },
		NodeAddresses: func() []netip.Addr { return []netip.Addr{own.Addr} },
		Speakers: func(uint32, bool, int) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("10.0.2.50"), netip.MustParseAddr("10.0.2.51")}, nil
		},
		OnSegment: func(_ context.Context, parent int, _ netip.Addr) (bool, error) {
			if parent == down {
				return false, failure
			}
			return true, nil
		},
		Pools: fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool).Build(),
		Log:   funcr.New(func(_, line string) { t.Log(line); lines++ }, funcr.Options{}), Clock: clock.RealClock{},
	})
	for _, step := range []struct {
		name    string
		failure error
		times   int
		lines   int
	}{
		{"the parent fails", unix.ENETDOWN, lasting, 1},
		{"it fails otherwise", unix.ENOBUFS, 1, 1},
		{"it works", nil, 1, 0},
		{"it fails again", unix.ENOBUFS, 2, 1},
	} {
		failure, lines = step.failure, 0
		for range step.times {
			check.OK(t, node.Do(func() error { w.measure(t.Context()); return nil }))
		}
		check.Equal(t, lines, step.lines, "%s: lines of the log:", step.name)
		check.That(t, w.Fault(true) != nil, "%s: no fault, although the pods on the other parent are silent", step.name)
	}
}

func newReachRig(t *testing.T, v4 bool) *reachRig {
	r := &reachRig{T: t, v4: v4, underlay: network.NewLAN(t), node: network.New(t, "node"), router: network.New(t, "router")}
	nodes := network.NewLAN(t)
	nodes.Plug(t, r.node, "eth0", nil, "node", r.prefix(1, 11))
	r.underlay.Plug(t, r.node, "ul0", nil, "parent")
	nodes.Plug(t, r.router, "eth0", nil, "router", r.prefix(1, 1))
	r.underlay.Plug(t, r.router, "eth1", nil, "router", r.prefix(2, 1))
	r.forward("1")
	check.OK(t, r.node.AddRoute(netip.Prefix{}, r.prefix(1, 1).Addr()))

	bpffs := t.TempDir()
	check.OK(t, unix.Mount("bpf", bpffs, "bpf", 0, ""))
	t.Cleanup(func() { check.OK(t, unix.Unmount(bpffs, unix.MNT_DETACH)) })
	kernel := check.Value(bpf.Open(bpf.Options{Dir: filepath.Join(bpffs, "pins")}))(t)
	segments := segment.New(segment.Config{Kernel: segment.KernelOf(kernel), Log: testr.New(t)})
	t.Cleanup(func() { check.OK(t, segments.Close()); check.OK(t, kernel.Remove()) })
	parent := check.Value(r.node.Index("ul0"))(t)
	check.OK(t, r.node.Do(func() error { _, err := segments.Open(parent); return err }))

	scheme := runtime.NewScheme()
	check.OK(t, v1alpha1.AddToScheme(scheme))
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.IPPoolSpec{
		Subnet: r.prefix(2, 0).String(), IPs: []string{r.prefix(2, 50).Addr().String(), r.prefix(2, 51).Addr().String()},
	}}
	r.watch = NewReach(ReachOptions{
		Entries: func() []*attachment.Entry {
			return []*attachment.Entry{{
				ParentIndex: parent, Routing: &attachment.Routing{HostLink: true, First: true},
				Addresses: []attachment.Address{{Addr: r.prefix(2, 60).Addr()}},
			}}
		},
		NodeAddresses: func() []netip.Addr { return []netip.Addr{r.prefix(1, 11).Addr()} },
		Speakers:      kernel.Sightings.Speakers, Pools: fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool).Build(),
		OnSegment: func(ctx context.Context, parent int, addr netip.Addr) (bool, error) {
			seg, _ := segments.Get(parent)
			reply, err := seg.Ask(ctx, addr)
			return reply.Answered, err
		},
		Log: testr.New(t), Clock: clock.RealClock{},
	})
	r.watch.patience = 100 * time.Millisecond
	// The router speaks as well, and answers the node in any case.
	r.speak(r.router, "eth1", r.prefix(2, 1).Addr())
	for i, role := range []string{"pod0", "pod1"} {
		at := r.prefix(2, byte(50+i))
		pod := r.underlay.Host(t, role, "eth0", at)
		check.OK(t, pod.AddRoute(netip.Prefix{}, r.prefix(2, 1).Addr()))
		r.pods = append(r.pods, pod)
		r.speak(pod, "eth0", at.Addr())
	}
	return r
}

// speak sends announcements until the parent has heard one.
func (r *reachRig) speak(host *network.Namespace, iface string, addr netip.Addr) {
	r.Helper()
	announcements := check.Value(frames.Announce(check.Value(host.MAC(iface))(r), addr))(r)
	to := &unix.SockaddrLinklayer{Ifindex: check.Value(host.Index(iface))(r)}
	check.Becomes(r, time.Minute, "the parent hears "+addr.String(), func() bool {
		check.OK(r, host.Do(func() error {
			socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(socket)
			return unix.Sendto(socket, announcements[0], 0, to)
		}))
		heard, err := r.watch.Speakers(uint32(r.watch.Entries()[0].ParentIndex), r.v4, 1)
		return err == nil && len(heard) == 1 && heard[0] == addr
	})
}

func (r *reachRig) eachPod(what string, do func(*network.Namespace) error) {
	r.Helper()
	for _, pod := range r.pods {
		check.Is(r, do(pod), nil, "%s in %s:", what, pod.Name)
	}
}

// noTCP makes a host drop its TCP segments, so also the refusal of a connection. Without this rule, each
// connection is an answer, and hides whether echo requests are heard.
func (r *reachRig) noTCP() *netlink.Rule {
	rule := netlink.NewRule()
	rule.Priority, rule.Type, rule.IPProto, rule.Family = 100, unix.FR_ACT_BLACKHOLE, unix.IPPROTO_TCP, unix.AF_INET
	if !r.v4 {
		rule.Family = unix.AF_INET6
	}
	return rule
}

// measure makes some measurements, after which there is a fault or none.
func (r *reachRig) measure(when string, times int, fault bool) {
	r.Helper()
	for range times {
		check.OK(r, r.node.Do(func() error { r.watch.measure(r.Context()); return nil }))
	}
	err := r.watch.Fault(r.v4)
	check.That(r, (err != nil) == fault, "%s: fault %v, want one: %t", when, err, fault)
	check.Is(r, r.watch.Fault(!r.v4), nil, "%s: a fault of the other family:", when)
}

func (r *reachRig) forward(value string) {
	r.Helper()
	r.set(r.router, "ipv4/ip_forward", "ipv6/conf/all/forwarding", value)
}

// set writes a setting of the family.
func (r *reachRig) set(host *network.Namespace, v4, v6, value string) {
	r.Helper()
	if !r.v4 {
		v4 = v6
	}
	check.OK(r, host.Do(func() error { return os.WriteFile("/proc/sys/net/"+v4, []byte(value), 0) }))
}

func (r *reachRig) prefix(subnet, host byte) netip.Prefix {
	if r.v4 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, subnet, host}), 24)
	}
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 7: subnet, 15: host}), 64)
}
