// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/segment/wire"
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
	h := &host{ns: r.namespace(name)}
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
	err := h.ns.Links().NeighDel(&netlink.Neigh{LinkIndex: check.Value(h.ns.Index("p0"))(t), IP: addr.AsSlice(), Family: family(addr)})
	check.Must(t, err == nil || errors.Is(err, unix.ENOENT), "%v", err)
}

func family(addr netip.Addr) int {
	if addr.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// announce makes a host speak for addr with its own MAC.
func (h *host) announce(t *testing.T, addr netip.Addr) {
	t.Helper()
	p := check.Value(wire.OpenPort(h.ns.Path(), "p0"))(t)
	defer func() { check.OK(t, p.Close()) }()
	for _, f := range check.Value(frames.Announce(h.mac, addr))(t) {
		check.OK(t, p.Send(f))
	}
}

// neighbour is the MAC that a host believes addr to have.
func (h *host) neighbour(t *testing.T, addr netip.Addr) net.HardwareAddr {
	t.Helper()
	for _, e := range check.Value(h.ns.Links().NeighList(check.Value(h.ns.Index("p0"))(t), family(addr)))(t) {
		if a, ok := netip.AddrFromSlice(e.IP); ok && a.Unmap() == addr {
			return e.HardwareAddr
		}
	}
	return nil
}

// arpLoad makes a host ask for addr about a thousand times a second.
func (h *host) arpLoad(t *testing.T, addr netip.Addr) (stop func()) {
	t.Helper()
	p := check.Value(wire.OpenPort(h.ns.Path(), "p0"))(t)
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
