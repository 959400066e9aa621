// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// host is a machine without Fenceline.
type host struct {
	ns   *network.Namespace
	mac  net.HardwareAddr
	port string
}

// addHost connects a foreign host that owns the given addresses.
func (r *rig) addHost(name string, addrs ...netip.Addr) *host {
	r.t.Helper()
	h := &host{ns: network.New(r.t, name)}
	h.port, h.mac = r.plug(h.ns)
	for _, a := range addrs {
		if a.Is4() || r.hasIPv6() {
			check.OK(r.t, h.ns.AddAddr("p0", prefix(a)))
		}
	}
	return h
}

// addHostWithMAC connects a foreign host with a given MAC.
func (r *rig) addHostWithMAC(name string, mac net.HardwareAddr, addrs ...netip.Addr) *host {
	r.t.Helper()
	h := r.addHost(name, addrs...)
	link := check.Value(h.ns.Links().LinkByName("p0"))(r.t)
	check.OK(r.t, h.ns.Links().LinkSetHardwareAddr(link, mac))
	h.mac = mac
	return h
}

// reaches tells whether addr answers a process in ns: by refusing a connection.
func reaches(ns *network.Namespace, addr netip.Addr) bool {
	err := ns.Do(func() error {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(addr, 9).String(), 700*time.Millisecond)
		if err == nil {
			return c.Close()
		}
		return err
	})
	return err == nil || errors.Is(err, unix.ECONNREFUSED)
}

// forget makes a host resolve addr anew.
func (h *host) forget(t *testing.T, addr netip.Addr) {
	t.Helper()
	err := h.ns.Links().NeighDel(&netlink.Neigh{LinkIndex: check.Value(h.ns.Index("p0"))(t), IP: addr.AsSlice(), Family: nl.GetIPFamily(addr.AsSlice())})
	check.Must(t, err == nil || errors.Is(err, unix.ENOENT), "%v", err)
}

// announce makes a host speak for addr with its own MAC.
func (h *host) announce(t *testing.T, addr netip.Addr) {
	t.Helper()
	p := check.Value(OpenPort(h.ns.Path(), "p0", 0))(t)
	defer func() { check.OK(t, p.Close()) }()
	for _, f := range check.Value(frames.Announce(h.mac, addr))(t) {
		check.OK(t, p.Send(f))
	}
}

// neighbour is the MAC that a host believes addr to have.
func (h *host) neighbour(t *testing.T, addr netip.Addr) net.HardwareAddr {
	t.Helper()
	for _, e := range check.Value(h.ns.Links().NeighList(check.Value(h.ns.Index("p0"))(t), nl.GetIPFamily(addr.AsSlice())))(t) {
		if a, ok := netip.AddrFromSlice(e.IP); ok && a.Unmap() == addr {
			return e.HardwareAddr
		}
	}
	return nil
}

// believes waits until the host takes addr for that of a MAC.
func (h *host) believes(t *testing.T, whose string, addr netip.Addr, mac net.HardwareAddr) {
	t.Helper()
	check.Becomes(t, patience, "the client knows "+whose, func() bool { return h.neighbour(t, addr).String() == mac.String() })
}

// arpLoad makes a host ask for addr about a thousand times a second.
func (h *host) arpLoad(t *testing.T, addr netip.Addr) (stop func()) {
	t.Helper()
	p := check.Value(OpenPort(h.ns.Path(), "p0", 0))(t)
	question := check.Value(frames.Probe(h.mac, nil, addr))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var load sync.WaitGroup
	sent, lost := 0, 0 // a busy machine loses frames of a load
	load.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			if err := p.Send(question); err != nil {
				lost++
			} else {
				sent++
			}
		}
	})
	return func() {
		cancel()
		load.Wait()
		check.That(t, sent != 0 && lost <= sent, "ARP load: %d frames were sent, %d were not", sent, lost)
		check.OK(t, p.Close())
	}
}

// pod is a macvlan interface with an address, guarded and leased.
type pod struct {
	node *node
	ns   *network.Namespace
	mac  net.HardwareAddr
	addr netip.Addr
	slot uint32
	// token of the installed lease.
	token uint64
}

// addPod starts a pod that holds addr by token.
func (n *node) addPod(name string, addr netip.Addr, token uint64) *pod {
	n.rig.t.Helper()
	as := addr.As16()
	return n.addPodWithMAC(name, addr, token, net.HardwareAddr{2, 0, 0, n.mac[5], byte(n.slots + 1), as[15]})
}

// rigMAC is the MAC of pods that have one MAC on several nodes: it has the octets of rig4.
var rigMAC = net.HardwareAddr{0x0a, 0x58, 10, 99, 0, 50}

func (n *node) addPodWithMAC(name string, addr netip.Addr, token uint64, mac net.HardwareAddr) *pod {
	n.rig.t.Helper()
	n.slots++
	p := &pod{node: n, ns: network.New(n.rig.t, name), addr: addr, slot: n.slots, mac: mac}
	check.OK(n.rig.t, n.ns.AddMacvlan(n.iface, mac, p.ns, "eth0"))
	p.start(token)
	return p
}

// start guards the pod's interface, installs its lease and gives it its address.
func (p *pod) start(token uint64) {
	t := p.node.rig.t
	t.Helper()
	guard := bpf.Guard{Slot: p.slot, Segment: p.node.parent, NetNS: p.ns.Path(), Interface: "eth0"}
	check.OK(t, p.node.kernel.Guards.Stage(guard))
	check.OK(t, p.node.kernel.Guards.Pin(guard))
	p.lease(token)
	check.OK(t, p.ns.SetUp("eth0", true))
	check.OK(t, p.ns.AddAddr("eth0", prefix(p.addr)))
}

func (p *pod) key() bpf.Key { return bpf.Key{Segment: uint32(p.node.parent), Addr: p.addr} }

// lease installs the pod's lease in the kernel.
func (p *pod) lease(token uint64) {
	p.node.rig.t.Helper()
	p.token = token
	check.OK(p.node.rig.t, p.node.kernel.Leases.Install(p.key(), bpf.Lease{Token: token, Network: rigNetwork, Slot: p.slot, MAC: p.mac}))
}

func (p *pod) holding(token uint64) Holding {
	return Holding{Parent: p.node.parent, Network: rigNetwork, Token: token,
		Announcement: Announcement{NetNS: p.ns.Path(), Interface: "eth0", MAC: p.mac, Addr: p.addr, Slot: p.slot}}
}

// hold makes the agent repeat and defend the pod's claim.
func (p *pod) hold(token uint64) {
	p.node.note(func() { p.node.holdings = append(p.node.holdings, p.holding(token)) })
}

func (p *pod) takeover(token uint64) Verification {
	return Verification{
		Claim:       Claim{Addr: p.addr, Network: rigNetwork, Token: token, PreviousToken: p.token, PreviousMAC: p.mac},
		Probe:       params50,
		OthersShare: true,
	}
}

// An adapter hands up the groups that somebody has joined, and a parent without IPv6 of its own joins none: the owner of
// an address answers to all nodes. A macvlan as the parent filters as adapters do.
func TestAParentWithoutIPv6HearsTheAnswers(t *testing.T) {
	families(t, func(t *testing.T, addr netip.Addr) {
		r := newRig(t)
		h := r.addHost("host", addr)
		n := r.connect("node1")
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex = "m0", check.Value(n.ns.Index("p0"))(t)
		check.OK(t, n.ns.Links().LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}))
		check.OK(t, n.ns.SetUp("m0", true))
		check.OK(t, n.ns.Do(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/m0/disable_ipv6", []byte("1"), 0) }))
		// The filter follows when it is set up again.
		check.OK(t, n.ns.SetUp("m0", false))
		check.OK(t, n.ns.SetUp("m0", true))
		check.Becomes(t, patience, "m0 is up", func() bool { return isUp(t, n.ns, "m0") })
		n.join("m0")
		answer := n.probe(addr, params50)
		equal(t, "conflict", answer.Conflict, true)
		equal(t, "MAC", answer.MAC.String(), h.mac.String())
	})
}
