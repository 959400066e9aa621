// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package masquerade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// rig is a segment with a node, another host, and pods of the node on macvlan with host links. All
// hosts and pods reach each other directly.
type rig struct {
	*testing.T
	node, other *network.Namespace
	links       *hostlink.Links
}

// Last parts of addresses in 10.0.0.0/24 and fd00::/64.
const (
	nodeHost     = 11
	secondOfNode = 12
	otherHost    = 30
	podHost      = 50
	podOnSame    = 51
)

// The ClusterIPs of a Service of the other host, and of one of a pod on the same node.
const serviceOfOther, serviceOfSame = 1, 2

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t}
	lan, services := network.NewLAN(t), []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd96::/112")}
	r.node, r.other = lan.Host(t, "node", "ul0", prefixes(nodeHost)...), lan.Host(t, "other", "eth0", prefixes(otherHost)...)
	check.OK(r, r.node.Forward())
	check.OK(r, r.node.Do(func() (err error) {
		r.links, err = hostlink.New(hostlink.Options{
			Session: "s", Guards: noGuards{}, Fenced: noGuards{}.Fenced, Log: logr.Discard(), Clock: clock.RealClock{},
			Entries:       func() []*attachment.Entry { return nil },
			Entry:         func(string, string) (attachment.Entry, bool) { return attachment.Entry{}, false },
			TryLock:       func(agentapi.Attachment) (func(), bool) { return func() {}, true },
			Prepare:       func() {},
			Services:      func() ([]netip.Prefix, error) { return services, nil },
			PodCIDRs:      func() ([]netip.Prefix, error) { return nil, nil },
			Balancers:     func(*attachment.Entry) ([]netip.Addr, error) { return nil, nil },
			NodeAddresses: func() []netip.Addr { return []netip.Addr{addr("ipv4", nodeHost), addr("ipv6", nodeHost)} },
		})
		return err
	}))
	t.Cleanup(func() { check.OK(t, r.links.Close()) })
	return r
}

// noGuards stands in for the guards of the agent: every address may speak.
type noGuards struct{}

func (noGuards) GuardLink(*attachment.Entry, string) error                  { return nil }
func (noGuards) LinkGuarded(*attachment.Entry, string) (bool, error)        { return true, nil }
func (noGuards) Dead(uint32) (bool, error)                                  { return false, nil }
func (noGuards) Fenced(*attachment.Entry, attachment.Address) (bool, error) { return false, nil }

// pod makes a pod on the node with a host link.
func (r *rig) pod(host byte) *network.Namespace {
	r.Helper()
	pod := network.New(r, fmt.Sprintf("pod%d", host))
	check.OK(r, r.node.AddMacvlan("ul0", nil, pod, "eth0"))
	check.OK(r, pod.SetUp("eth0", true))
	e := &attachment.Entry{
		ContainerID: "c-" + pod.Name, Interface: "eth0", NetNS: pod.Path(), Phase: attachment.Bound, Session: "s",
		PodNamespace: "default", PodName: pod.Name, MAC: check.Value(pod.MAC("eth0"))(r).String(),
		Routing: &attachment.Routing{HostLink: true, First: true, Listed: []netip.Prefix{listed("ipv4"), listed("ipv6")}},
	}
	for _, p := range prefixes(host) {
		check.OK(r, pod.AddAddr("eth0", p))
		e.Addresses = append(e.Addresses, attachment.Address{Addr: p.Addr()})
		e.Routing.Subnets = append(e.Routing.Subnets, p)
		e.Routing.Gateways = append(e.Routing.Gateways, netip.Addr{})
	}
	check.OK(r, r.links.Make(e))
	return pod
}

// listed returns a destination that pods reach by their host links.
func listed(family string) netip.Prefix {
	if family == "ipv4" {
		return netip.MustParsePrefix("10.0.9.0/24")
	}
	return netip.MustParsePrefix("fd09::/64")
}

func prefixes(host byte) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(addr("ipv4", host), 24), netip.PrefixFrom(addr("ipv6", host), 64)}
}

// addr returns the address of a host in one family.
func addr(family string, host byte) netip.Addr {
	if family == "ipv4" {
		return netip.AddrFrom4([4]byte{10, 0, 0, host})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 15: host})
}

// clusterIP returns the address of a Service.
func clusterIP(family string, service byte) netip.Addr {
	if family == "ipv4" {
		return netip.AddrFrom4([4]byte{10, 96, 0, service})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x96, 15: service})
}

const (
	servicePort = 80
	backendPort = 8080
)

// translate sends connections to the port of a Service to a backend, as kube-proxy does.
func (r *rig) translate(protocol string, to, backend netip.Addr) {
	r.Helper()
	check.OK(r, r.node.Translate(protocol, netip.AddrPortFrom(to, servicePort), netip.AddrPortFrom(backend, backendPort)))
}

// ensure makes the rules of the package on the node.
func (r *rig) ensure() {
	r.Helper()
	check.OK(r, r.node.Do(Ensure))
}

// patience is how long a client waits for an answer that must come.
const patience = time.Minute

// sourceOf returns the address under which a server knows a client.
func sourceOf(client *network.Namespace, protocol string, to netip.AddrPort, wait time.Duration) (netip.Addr, error) {
	c, err := client.Connect(netip.Addr{}, protocol, to, wait)
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return network.SourceOf(c, wait)
}

// wantSource fails the test unless the server answers, and knows the client as want.
func (r *rig) wantSource(what string, client *network.Namespace, protocol string, to netip.AddrPort, want netip.Addr) {
	r.Helper()
	got, err := sourceOf(client, protocol, to, patience)
	check.That(r, err == nil && got == want, "%s over %s to %s: the server knows the client as %s, %v; want %s", what, protocol, to, got, err, want)
}

// wantHang fails the test if the server answers, unless the client refuses the answer because it comes
// from an address that it did not ask.
func (r *rig) wantHang(what string, client *network.Namespace, protocol string, to netip.AddrPort) {
	r.Helper()
	before := r.strangers(client)
	// The request ends with this function, so that none of its answers is counted later.
	ctx, cancel := context.WithCancel(r.Context())
	answered, ended := make(chan netip.Addr, 1), make(chan struct{})
	defer func() { cancel(); <-ended }()
	go func() {
		defer close(ended)
		var c net.Conn
		err := client.Do(func() (err error) {
			c, err = (&net.Dialer{}).DialContext(ctx, protocol, to.String())
			return err
		})
		if err != nil {
			return
		}
		defer c.Close()
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
		if got, err := network.SourceOf(c, patience); err == nil {
			answered <- got
		}
	}()
	check.Eventually(r, patience, fmt.Sprintf("an answer over %s to %s", protocol, to), func() error {
		select {
		case got := <-answered:
			r.Fatalf("%s over %s to %s: it works without the rules; the server knows the client as %s", what, protocol, to, got)
		default:
		}
		if r.strangers(client) == before {
			return errors.New("the client has refused none")
		}
		return nil
	})
}

// strangers counts the datagrams and the segments of TCP that a host has refused, because no socket waits
// for them (RFC 1213 udpNoPorts, tcpOutRsts).
func (r *rig) strangers(host *network.Namespace) (n int) {
	r.Helper()
	check.OK(r, host.Do(func() error {
		old, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		for _, row := range []struct{ protocol, column string }{{"Udp:", "NoPorts"}, {"Tcp:", "OutRsts"}} {
			var columns []string
			for line := range strings.Lines(string(old)) {
				fields := strings.Fields(line)
				if fields[0] != row.protocol {
					continue
				}
				if columns == nil {
					columns = fields
					continue
				}
				count, err := strconv.Atoi(fields[slices.Index(columns, row.column)])
				if err != nil {
					return err
				}
				n += count
			}
		}
		six, err := os.ReadFile("/proc/thread-self/net/snmp6")
		if err != nil {
			return err
		}
		_, after, _ := strings.Cut(string(six), "Udp6NoPorts")
		count, err := strconv.Atoi(strings.Fields(after)[0])
		n += count
		return err
	}))
	return n
}

// protocols are those of Services.
func protocols() []string { return []string{"tcp", "udp"} }
