// SPDX-License-Identifier: Apache-2.0

//go:build kernel || bench

package hostlink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// rig is a node with pods on macvlan (in a guest on ipvlan), and a router on the same switch.
type rig struct {
	testing.TB
	node, router *network.Namespace
	links        *Links
	guards       *guards
	entries      []*journal.Entry
	services     []netip.Prefix
	pods         []netip.Prefix
	unknown      error
	// busy: calls are under way for all attachments.
	busy atomic.Bool
}

// guards stands in for the guards of the agent, whose programs need the agent's maps.
type guards struct {
	linked map[string]bool
	fenced sync.Map // keys are the fenced addresses
	dead   map[uint32]bool
	fail   error
}

func (g *guards) GuardLink(_ *journal.Entry, ifname string) error {
	g.linked[ifname] = true
	return g.fail
}

func (g *guards) LinkGuarded(_ *journal.Entry, ifname string) (bool, error) {
	return g.linked[ifname], nil
}

func (g *guards) Fenced(_ *journal.Entry, a journal.Address) (bool, error) {
	_, fenced := g.fenced.Load(a.Addr)
	return fenced, nil
}

func (g *guards) fence(addr string) { g.fenced.Store(netip.MustParseAddr(addr), nil) }

func (g *guards) unfence(addr string) { g.fenced.Delete(netip.MustParseAddr(addr)) }

func (g *guards) Dead(slot uint32) (bool, error) { return g.dead[slot], nil }

const (
	nodeAddr4, nodeAddr6     = "172.30.0.11", "fd30::11"
	routerAddr4, routerAddr6 = "10.0.0.1", "fd00::1"
)

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{TB: t, guards: &guards{linked: map[string]bool{}}}
	node, router := []string{nodeAddr4 + "/24", nodeAddr6 + "/64"}, []string{routerAddr4 + "/24", routerAddr6 + "/64"}
	if !hasIPv6() {
		node, router = node[:1], router[:1]
	}
	lan := network.NewLAN(t)
	r.node, r.router = lan.Host(t, "node", "ul0"), lan.Host(t, "router", "eth0", prefixes(router...)...)
	// The network of the nodes.
	lan.Plug(t, r.node, "mgmt0", nil, "mgmt", prefixes(node...)...)
	r.services = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd96::/112")}
	check.OK(r, r.node.Do(func() (err error) {
		r.links, err = New(Options{
			Session: "s", Guards: r.guards, Log: logr.Discard(), Clock: clock.RealClock{},
			Entries: func() []*journal.Entry { return r.entries },
			Entry: func(containerID, ifname string) (journal.Entry, bool) {
				i := slices.IndexFunc(r.entries, func(e *journal.Entry) bool { return e.ContainerID == containerID && e.Interface == ifname })
				if i < 0 {
					return journal.Entry{}, false
				}
				return *r.entries[i], true
			},
			TryLock:  func(agentapi.Attachment) (func(), bool) { return func() {}, !r.busy.Load() },
			Prepare:  func() {},
			Services: func() ([]netip.Prefix, error) { return r.services, r.unknown },
			PodCIDRs: func() ([]netip.Prefix, error) { return r.pods, nil },
			NodeAddresses: func() []netip.Addr {
				return []netip.Addr{netip.MustParseAddr(nodeAddr4), netip.MustParseAddr(nodeAddr6)}
			},
		})
		return err
	}))
	t.Cleanup(func() { check.OK(r, r.links.Close()) })
	return r
}

// hasIPv6 reports whether the kernel was started with IPv6.
func hasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}

func (r *rig) namespace(role string) *network.Namespace {
	r.Helper()
	return network.New(r, role)
}

// pod makes a pod with interfaces on the underlay, and records an entry for each of them. The first is eth0.
func (r *rig) pod(name string, interfaces ...[]string) (*network.Namespace, []*journal.Entry) {
	r.Helper()
	pod := r.namespace(name)
	var entries []*journal.Entry
	for i, addrs := range interfaces {
		ifname := "eth0"
		if i > 0 {
			ifname = fmt.Sprintf("net%d", i)
		}
		entries = append(entries, r.attach(pod, name, ifname, addrs...))
	}
	return pod, entries
}

func (r *rig) attach(pod *network.Namespace, name, ifname string, addrs ...string) *journal.Entry {
	r.Helper()
	check.OK(r, r.node.AddChild("ul0", child(), pod, ifname))
	check.OK(r, pod.SetUp(ifname, true))
	mac := check.Value(pod.MAC(ifname))(r)
	e := &journal.Entry{
		ContainerID: "c-" + name, Interface: ifname, NetNS: pod.Path(), Phase: journal.Bound, Session: "s",
		PodNamespace: "default", PodName: name, MAC: mac.String(),
		Routing: &journal.Routing{HostLink: ifname == "eth0", First: ifname == "eth0", OwnTable: ifname != "eth0"},
	}
	for _, text := range addrs {
		p := netip.MustParsePrefix(text)
		check.OK(r, pod.AddAddr(ifname, p))
		e.Addresses = append(e.Addresses, journal.Address{Addr: p.Addr()})
		e.Routing.Subnets = append(e.Routing.Subnets, p)
		gw := netip.MustParseAddr(routerAddr4)
		if p.Addr().Is6() {
			gw = netip.MustParseAddr(routerAddr6)
		}
		e.Routing.Gateways = append(e.Routing.Gateways, gw)
		if ifname == "eth0" {
			link := check.Value(pod.Links().LinkByName(ifname))(r)
			check.OK(r, pod.Links().RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gw.AsSlice()}))
		}
	}
	r.entries = append(r.entries, e)
	return e
}

// answers reports the peer's address that a TCP server at addr in one namespace saw of a client in
// another one. It fails with the client's error.
func answers(server, client *network.Namespace, listen, dial string) (peer netip.Addr, err error) {
	var l net.Listener
	if err := server.Do(func() (err error) { l, err = net.Listen("tcp", listen); return err }); err != nil {
		return peer, err
	}
	defer l.Close()
	seen := make(chan netip.Addr, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			close(seen)
			return
		}
		defer c.Close()
		a, _ := netip.ParseAddrPort(c.RemoteAddr().String())
		seen <- a.Addr().Unmap()
		_, _ = c.Write([]byte("x"))
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	err = client.Do(func() error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", dial)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetReadDeadline(time.Now().Add(3 * time.Second)); err != nil {
			return err
		}
		_, err = c.Read(make([]byte, 1))
		return err
	})
	if err != nil {
		return peer, err
	}
	return <-seen, nil
}

// wantAnswers fails the test unless the server sees the client under the wanted address.
func (r *rig) wantAnswers(server, client *network.Namespace, listen, dial, want string) {
	r.Helper()
	peer, err := answers(server, client, listen, dial)
	check.That(r, err == nil && peer.String() == want, "%s to %s: the server saw %s, %v; want %s", client.Name, dial, peer, err, want)
}

// wantBroken fails the test unless Check reports ErrBroken.
func (r *rig) wantBroken(e *journal.Entry) string {
	r.Helper()
	err := r.links.Check(e)
	if !errors.Is(err, ErrBroken) {
		r.Errorf("Check: %v, want ErrBroken", err)
		return ""
	}
	return err.Error()
}
