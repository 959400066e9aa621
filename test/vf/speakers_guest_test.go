// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package vf_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/vf"
)

// family has a subnet of one IP version.
type family struct {
	name   string
	subnet netip.Prefix
	wants  func(pool string) func(*corev1.Pod)
}

func families() []family {
	return []family{
		{"v4", netip.MustParsePrefix("10.66.0.0/24"), nodes.Wants},
		{"v6", netip.MustParsePrefix("fd00:66::/64"), nodes.WantsIPv6},
	}
}

// addr returns an address of the subnet.
func (f family) addr(last byte) netip.Addr {
	bytes := f.subnet.Addr().AsSlice()
	bytes[len(bytes)-1] = last
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}

// pool makes a pool of the addresses from first to last, and returns its name.
func (f family) pool(c *vf.Cluster, first, last byte) string {
	name := fmt.Sprintf("%s-%d", f.name, first)
	c.NamedPool(name, f.subnet.String(), fmt.Sprintf("%s-%s", f.addr(first), f.addr(last)))
	return name
}

// A foreign host is found when an ADD probes its address, and when it speaks for a pod's address.
func TestGuestAForeignHostIsFound(t *testing.T) {
	c := vf.New(t, 2)
	for _, f := range families() {
		t.Run(f.name, func(t *testing.T) {
			const first, number = 20, 3
			pool := f.pool(c, first, first+number-1)
			p := podsOf(c, vf.SRIOV, vf.Delegated)
			before := p.begin(t, 1, 0, f.wants(pool))
			// The next ADD begins behind the address of the last one.
			last := before.Addr.AsSlice()[len(before.Addr.AsSlice())-1] - first
			taken, free := f.addr(first+(last+1)%number), f.addr(first+(last+2)%number)
			host := c.Host(netip.PrefixFrom(taken, f.subnet.Bits()))
			pod := p.begin(t, 1, 1, f.wants(pool))
			check.That(t, pod.Addr == free, "the pod has %s, want %s", pod.Addr, free)
			p.conflicts(t, pool, taken, host, v1alpha1.StateQuarantined, "probe")

			thief, begun := c.Host(netip.PrefixFrom(pod.Addr, f.subnet.Bits())), time.Now()
			p.conflicts(t, pool, pod.Addr, thief, v1alpha1.StateBound, "")
			check.Eventually(t, limit, "the defence of "+pod.Addr.String(), func() error {
				about := capture.SpokenFor(capture.After(c.Frames.Frames(), begun), pod.Addr)
				if len(capture.From(about, thief.MAC)) == 0 || len(capture.From(about, pod.MAC)) == 0 {
					return fmt.Errorf("spoken: %v", about)
				}
				return nil
			})
			check.OK(t, errors.Join(thief.Unplug(), host.Unplug()))
			p.end(t, before)
			p.end(t, pod)
		})
	}
}

// conflicts waits until lease, metric and event report the conflict with a foreign host. If the
// lease is Bound, the host announces the address meanwhile.
func (p pods) conflicts(t *testing.T, pool string, addr netip.Addr, host *namespaces.Host, state v1alpha1.LeaseState, source string) {
	t.Helper()
	labels := map[string]string{"pool": pool}
	if source != "" {
		labels["source"] = source
	}
	mac := host.MAC
	check.Eventually(t, nodes.Limit, "the report of the conflict about "+addr.String(), func() error {
		if state == v1alpha1.StateBound {
			say(t, host.Namespace, namespaces.HostInterface, check.Value(frames.Announce(mac, addr))(t)...)
		}
		l, told := &v1alpha1.IPLease{}, &eventsv1.EventList{}
		err := errors.Join(p.Get(t.Context(), client.ObjectKey{Name: v1alpha1.LeaseName("", addr)}, l), p.List(t.Context(), told))
		if err == nil && (l.Spec.State != state || l.Spec.Conflict == nil || l.Spec.Conflict.MAC != mac.String()) {
			err = fmt.Errorf("the lease is %s with conflict %+v, want %s with %s", l.Spec.State, l.Spec.Conflict, state, mac)
		}
		if state == v1alpha1.StateBound && !slices.ContainsFunc(told.Items, func(e eventsv1.Event) bool {
			return e.Reason == "AddressConflict" && e.Note == fmt.Sprintf("%s also uses %s", mac, addr)
		}) {
			err = errors.Join(err, errors.New("no event AddressConflict"))
		}
		n, counted := p.Nodes[0].Sum(t.Context(), "fenceline_conflicts_total", labels)
		if counted == nil && n == 0 {
			counted = fmt.Errorf("no conflict of %v is counted", labels)
		}
		return errors.Join(err, counted)
	})
}

// A pod with CAP_NET_RAW on a VF sends foreign frames. Neither the VF beside it nor another host
// hears them. In a pool without a source guard, both hear them.
func TestGuestAPodOnAVFSendsOnlyAsItself(t *testing.T) {
	c := vf.New(t, 2)
	foreignMAC := net.HardwareAddr{2, 7, 7, 7, 7, 7}
	for i, mode := range []v1alpha1.SourceGuardMode{v1alpha1.SourceGuardEnforce, v1alpha1.SourceGuardOff} {
		for _, f := range families() {
			t.Run(f.name+" "+string(mode), func(t *testing.T) {
				first := byte(20 + 10*i)
				name := f.pool(c, first, first+2)
				pool := &v1alpha1.IPPool{}
				check.OK(t, c.Get(t.Context(), client.ObjectKey{Name: name}, pool))
				pool.Spec.SourceGuard = mode
				check.OK(t, c.Update(t.Context(), pool))
				p := podsOf(c, vf.SRIOV, vf.Delegated)
				pod, beside, far := p.add(t, 1, 0, f.wants(name)), p.add(t, 1, 1, f.wants(name)), p.add(t, 2, 0, f.wants(name))
				p.reach(t, pod, beside)
				p.reach(t, pod, far)

				foreign := f.addr(90)
				bad := map[string][]byte{
					"an announcement of a foreign address":       announcement(t, pod.MAC, pod.MAC, foreign),
					"an announcement from a foreign MAC":         announcement(t, foreignMAC, foreignMAC, pod.Addr),
					"an announcement that names a foreign MAC":   announcement(t, pod.MAC, foreignMAC, pod.Addr),
					"a packet from a foreign address":            packet(broadcast(), pod.MAC, foreign, far.Addr),
					"a packet from a foreign address and MAC":    packet(broadcast(), foreignMAC, foreign, far.Addr),
					"a packet from its own address, foreign MAC": packet(broadcast(), foreignMAC, pod.Addr, far.Addr),
				}
				if mode == v1alpha1.SourceGuardEnforce {
					bad["an announcement of another pod's address"] = announcement(t, pod.MAC, pod.MAC, far.Addr)
				}
				own := map[string][]byte{"its own packet": packet(broadcast(), pod.MAC, pod.Addr, far.Addr)}
				for _, all := range []map[string][]byte{bad, own} {
					for what, frame := range maps.Clone(all) {
						all[what+", to the VF beside"] = slices.Concat(beside.MAC, frame[6:])
						all[what+", to another host"] = slices.Concat(far.MAC, frame[6:])
					}
				}
				near, there := newTap(t, beside.Namespace), newTap(t, far.Namespace)
				wanted := own
				if mode == v1alpha1.SourceGuardOff {
					wanted = bad
				}
				socket := rawSocket(t, pod)
				const rounds = 10
				for round := 0; ; round++ {
					for _, all := range []map[string][]byte{bad, own} {
						for _, frame := range all {
							_, _ = unix.Write(socket, frame) // ENOBUFS, if a hook drops it
						}
					}
					err := errors.Join(near.lacks(wanted, "to another host"), there.lacks(wanted, "to the VF beside"))
					if err == nil && round >= rounds {
						break
					}
					if round > 100*rounds {
						t.Fatal(err)
					}
					_ = unix.Nanosleep(&unix.Timespec{Nsec: 5e6}, nil)
				}
				if mode == v1alpha1.SourceGuardOff {
					p.removeAll(t, pod, beside, far)
					return
				}
				for what, frame := range bad {
					check.Equal(t, near.heard(frame)+there.heard(frame), 0, "%s was heard by as many:", what)
				}
				check.None(t, capture.From(c.Frames.Frames(), foreignMAC), "frames of a foreign MAC that left the host:")
				dropped := check.Value(c.Nodes[0].Sum(t.Context(), "fenceline_source_guard_frames_total", map[string]string{"pod": pod.Pod.Name, "result": "dropped"}))(t)
				check.That(t, dropped >= float64(rounds*len(bad)), "%v of %d frames are counted as dropped", dropped, rounds*len(bad))
				p.removeAll(t, pod, beside, far)
			})
		}
	}
}

func (p pods) removeAll(t *testing.T, all ...*nodes.Sandbox) {
	t.Helper()
	for _, s := range all {
		p.remove(t, s)
	}
}

// announcement announces an address by a MAC, from a source.
func announcement(t *testing.T, source, mac net.HardwareAddr, addr netip.Addr) []byte {
	t.Helper()
	frame := check.Value(frames.Announce(mac, addr))(t)[0]
	copy(frame[6:], source)
	return frame
}

// packet is one of UDP.
func packet(dst, src net.HardwareAddr, from, to netip.Addr) []byte {
	udp := []byte{0x30, 0x39, 0x30, 0x39, 0, 8, 0, 0}
	if from.Is4() {
		return slices.Concat(dst, src, []byte{8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0}, from.AsSlice(), to.AsSlice(), udp)
	}
	return slices.Concat(dst, src, []byte{0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64}, from.AsSlice(), to.AsSlice(), udp)
}

// rawSocket is one that a container with CAP_NET_RAW opens.
func rawSocket(t *testing.T, s *nodes.Sandbox) (socket int) {
	t.Helper()
	index := check.Value(s.Index(namespaces.PodInterface))(t)
	check.OK(t, asPod(s.Namespace, func() (err error) {
		socket, err = packetsOf(index)
		return err
	}))
	t.Cleanup(func() { unix.Close(socket) })
	return socket
}

// say sends frames from an interface of a host.
func say(t *testing.T, ns *network.Namespace, iface string, all ...[]byte) {
	t.Helper()
	out := check.Value(segment.OpenPort(ns.Path(), iface, 0))(t)
	for _, frame := range all {
		check.OK(t, out.Send(frame))
	}
	check.OK(t, out.Close())
}

// tap keeps the frames that a pod's interface receives.
type tap struct {
	mu  sync.Mutex
	all [][]byte
}

func newTap(t *testing.T, ns *network.Namespace) *tap {
	t.Helper()
	tp := &tap{}
	hear(t, ns, func(frame []byte) {
		tp.mu.Lock()
		defer tp.mu.Unlock()
		tp.all = append(tp.all, bytes.Clone(frame))
	})
	return tp
}

// heard counts a frame.
func (tp *tap) heard(frame []byte) (n int) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	for _, f := range tp.all {
		if bytes.HasPrefix(f, frame) {
			n++
		}
	}
	return n
}

// lacks returns an error that names the frames that were not heard, except those for elsewhere.
func (tp *tap) lacks(all map[string][]byte, elsewhere string) error {
	for what, frame := range all {
		if tp.heard(frame) == 0 && !bytes.HasSuffix([]byte(what), []byte(elsewhere)) {
			return fmt.Errorf("%s was not heard", what)
		}
	}
	return nil
}
