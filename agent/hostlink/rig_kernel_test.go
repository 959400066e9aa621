// SPDX-License-Identifier: Apache-2.0

//go:build kernel || bench

package hostlink

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/attachment"
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
	entries      []*attachment.Entry
	services     []netip.Prefix
	pods         []netip.Prefix
	balancers    []netip.Addr
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

func (g *guards) GuardLink(_ *attachment.Entry, ifname string) error {
	g.linked[ifname] = true
	return g.fail
}

func (g *guards) LinkGuarded(_ *attachment.Entry, ifname string) (bool, error) {
	return g.linked[ifname], nil
}

func (g *guards) Fenced(_ *attachment.Entry, a attachment.Address) (bool, error) {
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
	r.services = prefixes("10.96.0.0/16", "fd96::/112")
	check.OK(r, r.node.Do(func() (err error) {
		r.links, err = New(Options{
			Session: "s", Guards: r.guards, Fenced: r.guards.Fenced, Log: logr.Discard(), Clock: clock.RealClock{},
			Entries: func() []*attachment.Entry { return r.entries },
			Entry: func(containerID, ifname string) (attachment.Entry, bool) {
				i := slices.IndexFunc(r.entries, func(e *attachment.Entry) bool { return e.ContainerID == containerID && e.Interface == ifname })
				if i < 0 {
					return attachment.Entry{}, false
				}
				return *r.entries[i], true
			},
			TryLock:       func(agentapi.Attachment) (func(), bool) { return func() {}, !r.busy.Load() },
			Prepare:       func() {},
			Services:      func() ([]netip.Prefix, error) { return r.services, r.unknown },
			PodCIDRs:      func() ([]netip.Prefix, error) { return r.pods, nil },
			NodeAddresses: func() []netip.Addr { return addrs(nodeAddr4, nodeAddr6) },
			Balancers:     func(*attachment.Entry) ([]netip.Addr, error) { return r.balancers, r.unknown },
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

// linked makes a rig with a pod that has a host link. Its eth0 has the addresses.
func linked(t testing.TB, addrs ...string) (*rig, *network.Namespace, *attachment.Entry) {
	t.Helper()
	r := newRig(t)
	pod, entries := r.pod("a", addrs)
	check.OK(r, r.links.Make(entries[0]))
	return r, pod, entries[0]
}

// link returns an interface by its name.
func (r *rig) link(in *network.Namespace, name string) netlink.Link {
	r.Helper()
	return check.Value(in.Links().LinkByName(name))(r)
}

// pod makes a pod with interfaces on the underlay, and records an entry for each of them. The first is eth0.
func (r *rig) pod(name string, interfaces ...[]string) (*network.Namespace, []*attachment.Entry) {
	r.Helper()
	pod := network.New(r, name)
	var entries []*attachment.Entry
	for i, addrs := range interfaces {
		ifname := "eth0"
		if i > 0 {
			ifname = fmt.Sprintf("net%d", i)
		}
		entries = append(entries, r.attach(pod, name, ifname, addrs...))
	}
	return pod, entries
}

func (r *rig) attach(pod *network.Namespace, name, ifname string, addrs ...string) *attachment.Entry {
	r.Helper()
	check.OK(r, r.node.AddChild("ul0", child(), pod, ifname))
	check.OK(r, pod.SetUp(ifname, true))
	mac := check.Value(pod.MAC(ifname))(r)
	e := &attachment.Entry{
		ContainerID: "c-" + name, Interface: ifname, NetNS: pod.Path(), Phase: attachment.Bound, Session: "s",
		PodNamespace: "default", PodName: name, MAC: mac.String(),
		Routing: &attachment.Routing{HostLink: ifname == "eth0", First: ifname == "eth0", OwnTable: ifname != "eth0"},
	}
	for _, text := range addrs {
		p := netip.MustParsePrefix(text)
		check.OK(r, pod.AddAddr(ifname, p))
		e.Addresses = append(e.Addresses, attachment.Address{Addr: p.Addr()})
		e.Routing.Subnets = append(e.Routing.Subnets, p)
		gw := netip.MustParseAddr(routerAddr4)
		if p.Addr().Is6() {
			gw = netip.MustParseAddr(routerAddr6)
		}
		e.Routing.Gateways = append(e.Routing.Gateways, gw)
		if ifname == "eth0" {
			check.OK(r, pod.Links().RouteAdd(&netlink.Route{LinkIndex: r.link(pod, ifname).Attrs().Index, Gw: gw.AsSlice()}))
		}
	}
	r.entries = append(r.entries, e)
	return e
}

// serve answers each client with the address under which it is seen, until the test ends or stop is called.
func (r *rig) serve(in *network.Namespace, family, address string) (stop func()) {
	r.Helper()
	return r.listen(in, family, address, nil, func(c *net.TCPConn) error {
		_, err := fmt.Fprintf(c, "server saw %s", addrPort(c.RemoteAddr()).Addr().Unmap())
		return err
	})
}

func addrPort(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }

// listen serves TCP until the test ends or stop is called. The client reads the error of serve.
func (r *rig) listen(in *network.Namespace, family, address string, control func(string, string, syscall.RawConn) error, serve func(*net.TCPConn) error) (stop func()) {
	r.Helper()
	var l net.Listener
	listener := net.ListenConfig{Control: control}
	check.OK(r, in.Do(func() (err error) { l, err = listener.Listen(r.Context(), family, address); return err }))
	stop = func() { _ = l.Close() }
	r.Cleanup(stop)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if err := serve(c.(*net.TCPConn)); err != nil {
					_, _ = fmt.Fprint(c, err)
				}
			}()
		}
	}()
	return stop
}

// ask returns all that a server says to a client in a namespace within 3 s. A call that took longer says
// nothing, because this machine stood: ask calls again.
func ask(client *network.Namespace, family, dst string) (said string, err error) {
	const limit = 3 * time.Second
	for range 3 {
		end := time.Now().Add(limit)
		err = client.Do(func() error {
			c, err := (&net.Dialer{Deadline: end}).Dial(family, dst)
			if err != nil {
				return err
			}
			defer c.Close()
			unset := c.SetReadDeadline(end)
			all, err := io.ReadAll(c)
			said = string(all)
			return errors.Join(unset, err)
		})
		if err == nil || time.Since(end) < limit/2 {
			break
		}
	}
	return said, err
}

// answers returns what a server that listens for this call says to a client in another namespace.
func (r *rig) answers(server, client *network.Namespace, listen, dial string) (string, error) {
	r.Helper()
	defer r.serve(server, "tcp", listen)()
	return ask(client, "tcp", dial)
}

// wantAnswer fails the test unless a client in a namespace gets that answer. Rules answer always or never, so it
// asks once more after frames that a busy machine may have lost.
func (r *rig) wantAnswer(client *network.Namespace, family, dst, want string) {
	r.Helper()
	got, err := ask(client, family, dst)
	if os.IsTimeout(err) {
		neighbours, _ := client.Command(r.Context(), "ip", "neigh").CombinedOutput()
		r.Logf("%s to %s: %v; its neighbours are:\n%s", client.Name, dst, err, neighbours)
		got, err = ask(client, family, dst)
	}
	check.That(r, err == nil && got == want, "%s to %s: %q, %v; want %q", client.Name, dst, got, err, want)
}

// wantAnswers fails the test unless the server sees the client under the wanted address.
func (r *rig) wantAnswers(server, client *network.Namespace, listen, dial, want string) {
	r.Helper()
	defer r.serve(server, "tcp", listen)()
	r.wantAnswer(client, "tcp", dial, "server saw "+want)
}

// wantBroken fails the test unless Check reports ErrBroken.
func (r *rig) wantBroken(e *attachment.Entry) string {
	r.Helper()
	err := r.links.Check(e)
	check.Is(r, err, ErrBroken, "Check:")
	return fmt.Sprint(err)
}
