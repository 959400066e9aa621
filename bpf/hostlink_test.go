// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/test/check"
)

// Each rule holds with pinned links on the pod's interface, and with filters as on kernels before 6.6.
func withAndWithoutTCX(t *testing.T, test func(t *testing.T, o Options)) {
	for name, o := range map[string]Options{"pinned links": {}, "filters": {NoTCX: true}} {
		t.Run(name, func(t *testing.T) { test(t, o) })
	}
}

func TestOnlyLeasedAddressesOfTheSlotLeaveByTheHostLink(t *testing.T) {
	withAndWithoutTCX(t, func(t *testing.T, o Options) {
		r := newLinkRig(t, o)
		to, by := r.node.mac(nodeEnd), r.pod.mac(podEnd)
		for name, tc := range map[string]struct {
			frame  []byte
			passes bool
		}{
			"IPv4":                              {eth(to, by, etherIPv4, ipv4(addr4, far4)), true},
			"IPv6":                              {eth(to, by, etherIPv6, ipv6(addr6, far6, nextUDP, udp())), true},
			"ARP":                               {arpFrame(by, addr4, far4), true},
			"IPv4 from an address of nobody":    {eth(to, by, etherIPv4, ipv4(nobody4, far4)), false},
			"IPv4 from a sibling's address":     {eth(to, by, etherIPv4, ipv4(other4, far4)), false},
			"IPv4 from no address":              {eth(to, by, etherIPv4, ipv4(none4, far4)), false},
			"IPv6 from an address of nobody":    {eth(to, by, etherIPv6, ipv6(other6, far6, nextUDP, udp())), false},
			"IPv6 from a link-local address":    {eth(to, by, etherIPv6, ipv6(local6, far6, nextUDP, udp())), false},
			"ARP with another sender":           {arpFrame(by, nobody4, far4), false},
			"ARP with a sibling's address":      {arpFrame(by, other4, far4), false},
			"ARP probe":                         {arpProbe(by, nobody4), false},
			"NA for another address":            {eth(to, by, etherIPv6, ipv6(addr6, far6, nextICMPv6, na(other6, by))), false},
			"NA from a link-local address":      {eth(to, by, etherIPv6, ipv6(local6, far6, nextICMPv6, na(local6, by))), false},
			"NS from another address":           {eth(to, by, etherIPv6, ipv6(other6, far6, nextICMPv6, ns(far6))), false},
			"duplicate address detection":       {dadFrame(by, other6), false},
			"tagged, from an address of nobody": {tagged(7, eth(to, by, etherIPv4, ipv4(nobody4, far4))), false},
			"claim":                             {claimFrame(t, claim.Frame{Network: network, Addr: addr4, Token: 900}, broadcast, by, keyA), false},
			"LLDP":                              {eth(to, by, 0x88cc, []byte{1}), false},
		} {
			check.Equal(t, r.leaves(tc.frame), tc.passes, "%s: passes", name)
		}
	})
}

// A virtual address that a pool allows is reached by way of the router, and answered by the host link.
func TestAllowedAddressesOfTheSlotLeaveByTheHostLink(t *testing.T) {
	r := newLinkRig(t, Options{})
	to, by := r.node.mac(nodeEnd), r.pod.mac(podEnd)
	frames := map[string][]byte{
		"IPv4": eth(to, by, etherIPv4, ipv4(nobody4, far4)), "IPv6": eth(to, by, etherIPv6, ipv6(other6, far6, nextUDP, udp())),
		"IPv4 of a sibling": eth(to, by, etherIPv4, ipv4(other4, far4)), "link-local": eth(to, by, etherIPv6, ipv6(local6, far6, nextUDP, udp())),
	}
	crossing := func() (all []string) {
		for name, frame := range frames {
			if r.leaves(frame) {
				all = append(all, name)
			}
		}
		slices.Sort(all)
		return all
	}
	allow := Sources{Mode: SourcesEnforce, MAC: r.pod.mac("eth0")}
	check.OK(t, r.Sources.Set(1, allow))
	check.List(t, crossing(), nil, "without an allowance: pass")
	for _, a := range []netip.Addr{nobody4, other4, other6, local6} {
		allow.Prefixes = append(allow.Prefixes, netip.PrefixFrom(a, a.BitLen()))
	}
	check.OK(t, r.Sources.Set(1, allow))
	check.List(t, crossing(), []string{"IPv4", "IPv6"}, "allowed by the pool: pass")
}

func TestAFencedAddressPassesNoHostLink(t *testing.T) {
	withAndWithoutTCX(t, func(t *testing.T, o Options) {
		r := newLinkRig(t, o)
		to, by := r.node.mac(nodeEnd), r.pod.mac(podEnd)
		out4, out6 := eth(to, by, etherIPv4, ipv4(addr4, far4)), eth(to, by, etherIPv6, ipv6(addr6, far6, nextUDP, udp()))
		in4, in6 := eth(by, to, etherIPv4, ipv4(far4, addr4)), eth(by, to, etherIPv6, ipv6(far6, addr6, nextUDP, udp()))
		crossing := func() (all []string) {
			for name, passes := range map[string]bool{
				"from IPv4": r.leaves(out4), "from IPv6": r.leaves(out6), "to IPv4": r.enters(in4), "to IPv6": r.enters(in6),
			} {
				if passes {
					all = append(all, name)
				}
			}
			slices.Sort(all)
			return all
		}
		want := func(when string, all ...string) {
			t.Helper()
			check.List(t, crossing(), all, "%s: pass", when)
		}
		want("before the fence", "from IPv4", "from IPv6", "to IPv4", "to IPv6")
		r.acks(200) // fences addr4
		want("when fenced", "from IPv6", "to IPv6")
		check.OK(t, r.Leases.Install(r.key, r.lease(300)))
		want("with a newer lease", "from IPv4", "from IPv6", "to IPv4", "to IPv6")
		check.OK(t, r.Guards.Kill(1))
		want("when the slot is dead")
	})
}

func TestTheGuardOfAHostLinkIsTheFirstAndOnlyFilter(t *testing.T) {
	r := newLinkRig(t, Options{})
	want := func(when string, slot uint32, guarded bool, names ...string) {
		t.Helper()
		equal(t, when+": guarded", r.linkGuarded(slot), guarded)
		for _, d := range attach.Directions {
			got, _ := r.linkFilters(d)
			check.List(t, got, names, "%s: %s filters", when, d.Name)
		}
	}
	own := string(attach.HostLinkFilter)
	want("guarded", 1, true, own)
	r.guardLink(1)
	want("guarded again", 1, true, own)

	rude := rudeProgram(t)
	r.onLink(func(dev *attach.Device) error {
		return errors.Join(
			dev.PutFilter(dev.Filter(attach.Directions[0], "rude", 77, rude.FD())),
			dev.PutFilter(dev.Filter(attach.Directions[1], "rude", 77, rude.FD())))
	})
	want("behind another", 1, false, "rude", own)
	r.guardLink(1)
	want("first again", 1, true, own, "rude")

	// An ADD that is repeated has another slot.
	check.OK(t, r.Guards.Stage(Guard{Slot: 2, Segment: r.parent, NetNS: r.sibling.path, Interface: "eth0"}))
	r.guardLink(2)
	want("taken over", 2, true, own, "rude")
	equal(t, "guarded by the former slot", r.linkGuarded(1), false)
	r.onLink(func(dev *attach.Device) error {
		filters, err := dev.Filters(attach.Directions[0])
		return errors.Join(err, dev.RemoveFilter(attach.Directions[0], attach.HostLinkFilter, filters[0].Attrs().Handle))
	})
	equal(t, "guarded with one filter", r.linkGuarded(2), false)
}

func TestGuardingNoHostLink(t *testing.T) {
	r := newLinkRig(t, Options{})
	r.node.do(func() error {
		check.Is(t, r.Guards.HostLinks.Guard(Guard{Slot: 1}, "flh7"), ErrNoDevice, "no interface: got")
		check.Is(t, r.Guards.HostLinks.Guard(Guard{Slot: 9}, nodeEnd), ErrNoGuard, "no guard: got")
		check.Is(t, r.Guards.HostLinks.Guard(Guard{}, nodeEnd), ErrSlot, "no slot: got")
		guarded, err := r.Guards.HostLinks.Guarded(1, "flh7")
		equal(t, "no interface is guarded", guarded, false)
		return err
	})
}

// The zombie talks all the time while the agent restarts and guards its host link again: not one frame may come out.
// The start replaces the programs before anything else is repaired.
func TestAnUpgradeReplacesTheGuardOfAHostLinkWithoutAGap(t *testing.T) {
	withAndWithoutTCX(t, func(t *testing.T, o Options) {
		r := newLinkRig(t, o)
		_, before := r.linkFilters(attach.Directions[1])
		r.acks(200)
		s := r.node.socket(nodeEnd, unix.ETH_P_IP)
		frame := eth(r.node.mac(nodeEnd), r.pod.mac(podEnd), etherIPv4, ipv4(addr4, far4))
		stop := r.pod.socket(podEnd, 0).chatter(frame)
		for range 3 {
			r.reopen(o)
			names, opened := r.linkFilters(attach.Directions[1])
			check.That(t, len(names) == 1 && !slices.Equal(before, opened), "opened: filters %v, programs %v, before %v", names, opened, before)
			for range 20 {
				r.guardLink(1)
			}
		}
		sent := stop()
		check.That(t, sent >= 1000, "only %d frames sent", sent)
		equal(t, "a frame of the zombie came", s.has(frame), false)
		equal(t, "guarded", r.linkGuarded(1), true)
		check.OK(t, r.Leases.Install(r.key, r.lease(300)))
		equal(t, "the new programs read the new leases", r.leaves(frame), true)
		check.OK(t, r.Guards.Kill(1))
		equal(t, "the new programs read the new slots", r.leaves(frame), false)
	})
}

// A slot that is given to another pod would let the old pod send from the new one's addresses.
func TestASlotIsInUseWhileItsHostLinkLives(t *testing.T) {
	withAndWithoutTCX(t, func(t *testing.T, o Options) {
		for name, before := range map[string]func(*rig){
			"its interface went":                   func(r *rig) { r.pod.deleteLink("eth0") },
			"it was killed and its interface went": func(r *rig) { check.OK(r.t, r.Guards.Kill(1)); r.pod.deleteLink("eth0") },
			"its interface went and the agent was started again": func(r *rig) {
				r.pod.deleteLink("eth0")
				r.reopen(o)
			},
			"it was detached": func(r *rig) { r.node.do(func() error { return r.Guards.Detach(1) }) },
			"it was detached and the agent was started again": func(r *rig) {
				r.node.do(func() error { return r.Guards.Detach(1) })
				r.reopen(o)
			},
		} {
			t.Run(name, func(t *testing.T) {
				r := newLinkRig(t, o)
				before(r)
				for range 2 {
					check.None(t, in(r.node, r.Guards.Sweep), "swept while the host link lives")
					equal(t, "used", check.Value(r.Slots.Used(1))(t), true)
				}
				// Without its leases, as the agent leaves it, nothing passes.
				check.OK(t, errors.Join(r.Leases.Remove(r.key), r.Leases.Remove(r.key6())))
				out := eth(r.node.mac(nodeEnd), r.pod.mac(podEnd), etherIPv4, ipv4(addr4, far4))
				equal(t, "a frame came", r.leaves(out), false)

				r.pod.deleteLink(podEnd) // the veth pair goes with the pod's namespace
				swept := map[uint32]bool{}
				check.Becomes(t, time.Minute, "a sweep", func() bool {
					for _, slot := range in(r.node, r.Guards.Sweep) {
						swept[slot] = true
					}
					return len(swept) > 0
				})
				check.That(t, maps.Equal(swept, map[uint32]bool{1: true}), "swept %v once the host link is gone", swept)
				equal(t, "used once swept", check.Value(r.Slots.Used(1))(t), false)
			})
		}
	})
}

func TestRemovingTakesTheGuardOffHostLinks(t *testing.T) {
	r := newLinkRig(t, Options{})
	r.node.do(func() error { return r.Remove() })
	for _, d := range attach.Directions {
		names, _ := r.linkFilters(d)
		check.None(t, names, "%s filters", d.Name)
	}
}

// RFC 4861, 7.1: no host of the segment listens to it, and anybody far away can send it.
func TestNeighbourDiscoveryThatCameOverARouterIsNobodysWord(t *testing.T) {
	for name, frame := range map[string][]byte{
		"NA":  routed(naFrame(remoteMAC, far6)),
		"NS":  routed(eth(broadcast, remoteMAC, etherIPv6, ipv6(far6, local6, nextICMPv6, ns(addr6)))),
		"DAD": routed(dadFrame(remoteMAC, far6)),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, setup{})
			check.OK(t, b.Leases.Install(key(far6), Lease{}))
			b.expect(WhereObserverIngress, frame, pass)
			s := b.state(far6)
			equal(t, "hits", s.Hits, 0)
			equal(t, "probes", s.Probes, 0)
			equal(t, "sighted", has(b.Sightings.Last(key(far6)))(t), false)
		})
	}
	t.Run("nor for an address of a pod that gets it", func(t *testing.T) {
		newBench(t, setup{}, addr6).expect(WhereGuardIngress, routed(naFrame(remoteMAC, addr6)), pass)
	})
	t.Run("but a pod may not send it for others", func(t *testing.T) {
		b := newBench(t, setup{})
		b.bind(other6, 2)
		b.expect(WhereGuardEgress, routed(eth(broadcast, podMAC, etherIPv6, ipv6(local6, far6, nextICMPv6, na(other6, podMAC)))), drop, ResultDropSlot)
	})
}

// The two ends of a host link.
const (
	nodeEnd = "flh0"
	podEnd  = "host-eth0"
)

// newLinkRig makes a rig whose pod has a host link to its node.
func newLinkRig(t *testing.T, o Options) *rig {
	t.Helper()
	r := newRigWith(t, o)
	check.OK(t, r.Leases.Install(r.key6(), r.lease(100)))
	check.OK(t, r.Leases.Install(Key{r.key.Segment, other4}, Lease{Token: 100, Network: network, Slot: 2, MAC: r.sibling.mac("eth0")}))
	check.OK(t, r.node.AddPair(nodeEnd, r.pod.Namespace, podEnd))
	r.node.up(nodeEnd)
	r.pod.up(podEnd)
	r.guardLink(1)
	return r
}

func (r *rig) key6() Key { return Key{Segment: uint32(r.parent), Addr: addr6} }

func (r *rig) guardLink(slot uint32) {
	r.t.Helper()
	r.node.do(func() error { return r.Guards.HostLinks.Guard(Guard{Slot: slot}, nodeEnd) })
}

func (r *rig) linkGuarded(slot uint32) bool {
	r.t.Helper()
	return in(r.node, func() (bool, error) { return r.Guards.HostLinks.Guarded(slot, nodeEnd) })
}

// onLink opens the node's end.
func (r *rig) onLink(fn func(*attach.Device) error) {
	r.t.Helper()
	r.node.do(func() error {
		dev, err := attach.OpenDevice("", nodeEnd)
		if err != nil {
			return err
		}
		defer dev.Close()
		return fn(dev)
	})
}

// linkFilters are the names of the filters on the node's end, in their order.
func (r *rig) linkFilters(dir attach.Direction) (names []string, ids []int) {
	r.t.Helper()
	r.onLink(func(dev *attach.Device) error {
		filters, err := dev.Filters(dir)
		for _, f := range filters {
			own := f.(*netlink.BpfFilter)
			names, ids = append(names, own.Name), append(ids, own.Id)
		}
		return err
	})
	return names, ids
}

// leaves reports whether a frame of the pod comes out of the node's end. The programs see it before a socket of its
// protocol does.
func (r *rig) leaves(frame []byte) bool {
	r.t.Helper()
	return r.crosses(r.pod.socket(podEnd, 0), r.node.socket(nodeEnd, protocolOf(frame)), WhereGuardEgress, frame)
}

// enters reports whether a frame of the node comes to the pod.
func (r *rig) enters(frame []byte) bool {
	r.t.Helper()
	return r.crosses(r.node.socket(nodeEnd, 0), r.pod.socket(podEnd, protocolOf(frame)), WhereGuardIngress, frame)
}

// crosses sends a frame and waits until it has come or a program has counted a drop.
func (r *rig) crosses(from, to *socket, where Where, frame []byte) bool {
	r.t.Helper()
	before, came := r.drops(where), false
	from.send(frame)
	check.Becomes(r.t, time.Minute, "the frame comes or is dropped", func() bool {
		dropped := r.drops(where) > before
		came = to.has(frame)
		return came || dropped
	})
	return came
}

// drops counts the frames that one program has dropped.
func (r *rig) drops(where Where) (n uint64) {
	r.t.Helper()
	all := check.Value(r.Counters())(r.t)
	for _, why := range []Result{
		ResultFromPod, ResultDropFenced, ResultDropDead, ResultDropSlot, ResultDropMAC, ResultDropUnleased, ResultDropMalformed,
		ResultDropTagged, ResultDropBridge,
	} {
		n += all[Counter{where, why}]
	}
	return n
}

func protocolOf(frame []byte) int { return int(binary.BigEndian.Uint16(frame[12:])) }

// has reports whether a frame has come.
func (s *socket) has(frame []byte) bool {
	s.t.Helper()
	raw := check.Value(s.SyscallConn())(s.t)
	for {
		buf := make([]byte, 2048)
		var n int
		var failed error
		check.OK(s.t, raw.Read(func(fd uintptr) bool {
			n, _, failed = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
			return true
		}))
		if errors.Is(failed, unix.EAGAIN) {
			return false
		}
		check.OK(s.t, failed)
		if bytes.Equal(buf[:n], frame) {
			return true
		}
	}
}
