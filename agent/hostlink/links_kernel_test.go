// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package hostlink

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

func TestAPodAndItsNodeReachEachOther(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.7/24", "fd00::7/64"})
	answers := check.Err(r.answers(r.node, pod, nodeAddr4+":80", nodeAddr4+":80")) == nil
	check.Must(t, !answers, "the pod reaches its node without a host link: this test shows nothing")
	check.OK(r, r.links.Make(entries[0]))
	r.wantBothWays(pod)
	// The rest stays on the underlay.
	r.wantAnswers(r.router, pod, routerAddr4+":80", routerAddr4+":80", "10.0.0.7")
	r.wantAnswers(pod, r.router, ":80", "10.0.0.7:80", routerAddr4)
	check.OK(t, r.links.Check(entries[0]))
}

// A client that the node forwards to the pod keeps its address. The reply must go back through the
// node, which may have translated the destination.
func TestRepliesLeaveAsTheRequestCame(t *testing.T) {
	r := newRig(t)
	client := r.beyond()
	pod, entries := r.pod("a", []string{"10.0.0.7/24", "fd00::7/64"})
	// Some distributions check the way back of each source strictly.
	check.OK(r, pod.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("1"), 0) }))
	check.OK(r, r.links.Make(entries[0]))
	// The router does not know the client: a reply by the underlay is lost.
	r.wantAnswers(pod, client, ":80", "10.0.0.7:80", "192.0.2.9")
	r.wantAnswers(pod, client, ":80", "[fd00::7]:80", "2001:db8::9")
}

// The request comes by the router, and the answer leaves by the host link. The node has no route there for
// the virtual address.
func TestANodeReachesAVirtualAddressOfItsPod(t *testing.T) {
	for _, all := range []string{"0", "1"} {
		t.Run("rp_filter of all interfaces is "+all, func(t *testing.T) {
			r, pod, _ := linked(t, "10.0.0.7/24", "fd00::7/64")
			r.sysctls(r.node, map[string]string{"ipv4/conf/all/rp_filter": all})
			check.OK(r, r.router.AddPair("mgmt0", r.node, "router0"))
			check.OK(r, r.router.AddAddr("mgmt0", netip.MustParsePrefix("172.31.0.1/24")))
			check.OK(r, r.node.AddAddr("router0", netip.MustParsePrefix("172.31.0.2/24")))
			for ns, name := range map[*network.Namespace]string{r.router: "mgmt0", r.node: "router0"} {
				check.OK(r, ns.SetUp(name, true))
			}
			check.OK(r, r.router.Forward())
			check.OK(r, r.router.AddRoute(netip.MustParsePrefix(nodeAddr4+"/32"), netip.MustParseAddr("172.31.0.2")))
			link := r.link(r.node, "router0").Attrs().Index
			check.OK(r, r.node.Links().RouteAdd(&netlink.Route{LinkIndex: link, Dst: ipNet(netip.MustParsePrefix("10.0.0.0/24")),
				Gw: net.ParseIP("172.31.0.1"), Src: net.ParseIP(nodeAddr4)}))
			check.OK(r, pod.AddAddr("eth0", netip.MustParsePrefix("10.0.0.100/32")))
			r.wantAnswers(pod, r.node, ":80", "10.0.0.100:80", nodeAddr4)
			_, err := r.node.Links().RouteGet(nextHop4.AsSlice())
			check.Is(r, err, unix.ENETUNREACH, "the node takes the address of the end for its own:")
		})
	}
}

// A load balancer that this node announces would not hear its own pods on the segment of the pods. On another
// one, a request that comes back by the router fails a strict check of its source (rp_filter).
func TestAPodReachesTheLoadBalancersOfItsNode(t *testing.T) {
	r, pod, e := linked(t, "10.0.0.7/24", "fd00::7/64")
	balancers := addrs("10.0.0.200", "fd00::200", "10.9.0.200")
	check.OK(r, r.node.AddPair(servicesLink, r.node, "peer")) // not an address of the node
	check.OK(r, r.node.SetUp("peer", true))
	check.OK(r, r.node.SetUp(servicesLink, true))
	for _, a := range balancers {
		check.OK(r, r.node.AddAddr(servicesLink, netip.PrefixFrom(a, a.BitLen())))
	}
	r.balancers = balancers
	check.OK(r, r.links.Repair())
	r.wantAnswers(r.node, pod, "10.0.0.200:80", "10.0.0.200:80", "10.0.0.7")
	r.wantAnswers(r.node, pod, "[fd00::200]:80", "[fd00::200]:80", "fd00::7")
	r.wantAnswers(r.node, pod, "10.9.0.200:80", "10.9.0.200:80", "10.0.0.7")
	link := r.link(pod, PodEnd(e.Attachment())).Attrs().Index
	by := func(dst string) bool {
		routes := check.Value(pod.Links().RouteGet(net.ParseIP(dst)))(r)
		return len(routes) == 1 && routes[0].LinkIndex == link
	}
	r.balancers, r.unknown = nil, errors.New("the cache is not filled")
	check.OK(r, r.links.Repair())
	check.That(r, by("10.0.0.200"), "a balancer is lost while Services cannot be read")
	r.unknown = nil
	check.OK(r, r.links.Repair())
	check.That(r, !by("10.0.0.200"), "a balancer that is gone is still behind the host link")
}

// beyond makes a client beyond the node, 192.0.2.9 and 2001:db8::9, which the router does not know.
func (r *rig) beyond() *network.Namespace {
	r.Helper()
	lan := network.NewLAN(r)
	lan.Plug(r, r.node, "out0", nil, "out", prefixes("192.0.2.1/24", "2001:db8::1/64")...)
	client := lan.Host(r, "client", "eth0", prefixes("192.0.2.9/24", "2001:db8::9/64")...)
	for _, gw := range []string{"192.0.2.1", "2001:db8::1"} {
		check.OK(r, client.AddRoute(netip.Prefix{}, netip.MustParseAddr(gw)))
	}
	check.OK(r, r.node.Forward())
	return client
}

func TestSecondInterfacesAnswerWhereTheyWereAsked(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.7/24", "fd00::7/64"}, []string{"10.0.0.8/24", "fd00::8/64"})
	for _, e := range entries {
		check.OK(r, r.links.Make(e))
	}
	for source, want := range map[string]string{"10.0.0.7": "eth0", "10.0.0.8": "net1", "fd00::7": "eth0", "fd00::8": "net1"} {
		for _, to := range []string{"", "far"} {
			check.Equal(t, leaves(t, pod, source, to), want, "a frame from %s %s leaves by", source, to)
		}
	}
	for _, address := range []string{"10.0.0.8:80", "[fd00::8]:80", "10.0.0.7:80", "[fd00::7]:80"} {
		check.Is(t, check.Err(r.answers(pod, r.router, ":80", address)), nil, "router to %s:", address)
	}
	for _, e := range entries {
		check.OK(t, r.links.Check(e))
	}
}

// A bridge network has made eth0, and the annotation gives the default routes to the underlay.
func TestTheUnderlayTakesTheDefaultRoutes(t *testing.T) {
	r := newRig(t)
	pod, e := r.besideBridge("a")
	for range 2 { // a repair changes nothing
		check.OK(r, r.links.Make(e))
		for _, c := range []struct{ from, to, want string }{
			{"", "192.0.2.9", "net1"}, {"", "10.96.0.1", "eth0"}, {"", nodeAddr4, "eth0"}, {"", "10.244.0.9", "eth0"},
			{"10.244.0.7", "192.0.2.9", "eth0"}, {"10.244.0.7", "10.244.0.9", "eth0"}, {"10.0.0.7", "192.0.2.9", "net1"},
		} {
			link, _ := leavesBy(t, pod, c.from, c.to)
			check.Equal(t, link, c.want, "from %q to %s: leaves by", c.from, c.to)
		}
	}
}

// A network of veth pairs has made eth0, as the plugin ptp does: all hosts are behind its gateway, those
// of its subnet too. macvlan adds its default routes to those of eth0.
func TestTheUnderlayTakesTheDefaultRoutesFromAVethPair(t *testing.T) {
	r := newRig(t)
	pod, other := network.New(r, "a"), network.New(r, "other")
	check.OK(r, other.AddBridge("br0"))
	check.OK(r, pod.SetUp("lo", true))
	check.OK(r, pod.Plug("eth0", nil, other, "port", "br0"))
	link := r.link(pod, "eth0").Attrs().Index
	for _, c := range []struct{ address, gateway string }{{"10.244.0.7/24", "10.244.0.1"}, {"fd44::7/64", "fd44::1"}} {
		address, gateway := netip.MustParsePrefix(c.address), netip.MustParseAddr(c.gateway)
		check.OK(r, pod.AddAddr("eth0", address))
		own := netip.PrefixFrom(gateway, gateway.BitLen())
		check.OK(r, pod.Links().RouteDel(&netlink.Route{LinkIndex: link, Dst: ipNet(address.Masked()), Scope: netlink.SCOPE_LINK}))
		check.OK(r, pod.Links().RouteAdd(&netlink.Route{LinkIndex: link, Dst: ipNet(own), Scope: netlink.SCOPE_LINK}))
		check.OK(r, pod.Links().RouteAdd(&netlink.Route{LinkIndex: link, Dst: ipNet(address.Masked()), Gw: gateway.AsSlice()}))
		check.OK(r, pod.Links().RouteAdd(&netlink.Route{LinkIndex: link, Gw: gateway.AsSlice()}))
	}
	e := r.attach(pod, "a", "net1", "10.0.0.7/24", "fd00::7/64")
	e.Routing.TakesDefault = true
	for _, gw := range e.Routing.Gateways {
		check.OK(r, pod.Links().RouteAppend(&netlink.Route{LinkIndex: r.link(pod, "net1").Attrs().Index, Gw: gw.AsSlice()}))
	}
	// The pods of the other nodes. The subnet of eth0 has its route already, and that of net1 is the underlay.
	r.pods = prefixes("10.244.0.0/24", "10.245.0.0/16", "10.0.0.0/26", "fd44:0:0:1::/64")
	for range 2 { // a repair changes nothing
		check.OK(r, r.links.Make(e))
		for _, c := range []struct{ from, to, link, via string }{
			{"", "192.0.2.9", "net1", routerAddr4}, {"", "2001:db8::9", "net1", routerAddr6},
			{"", "10.96.0.1", "eth0", "10.244.0.1"}, {"", "fd96::1", "eth0", "fd44::1"},
			{"", nodeAddr4, "eth0", "10.244.0.1"}, {"", nodeAddr6, "eth0", "fd44::1"},
			{"", "10.245.3.9", "eth0", "10.244.0.1"}, {"", "fd44:0:0:1::9", "eth0", "fd44::1"}, {"10.0.0.7", "10.245.3.9", "net1", routerAddr4}, {"", "10.0.0.9", "net1", "invalid IP"},
			{"", "10.244.0.9", "eth0", "10.244.0.1"}, {"", "fd44::9", "eth0", "fd44::1"},
			{"10.244.0.7", "10.244.0.9", "eth0", "10.244.0.1"}, {"fd44::7", "fd44::9", "eth0", "fd44::1"},
			{"10.244.0.7", "192.0.2.9", "eth0", "10.244.0.1"}, {"fd44::7", "2001:db8::9", "eth0", "fd44::1"},
			{"10.0.0.7", "192.0.2.9", "net1", routerAddr4}, {"fd00::7", "2001:db8::9", "net1", routerAddr6},
		} {
			link, via := leavesBy(t, pod, c.from, c.to)
			check.Equal(t, link+" via "+via.String(), c.link+" via "+c.via, "from %q to %s: leaves by", c.from, c.to)
		}
	}
}

// leavesBy returns the interface and the next hop of frames to an address. from may be empty.
func leavesBy(t *testing.T, pod *network.Namespace, from, to string) (link string, via netip.Addr) {
	t.Helper()
	options := &netlink.RouteGetOptions{}
	if from != "" {
		options.SrcAddr = netip.MustParseAddr(from).AsSlice()
	}
	routes, err := pod.Links().RouteGetWithOptions(netip.MustParseAddr(to).AsSlice(), options)
	check.Must(t, err == nil, "from %q to %s: %v", from, to, err)
	return check.Value(pod.Links().LinkByIndex(routes[0].LinkIndex))(t).Attrs().Name, addrOf(routes[0].Gw)
}

// besideBridge makes a pod whose eth0 a bridge network has made, and whose net1 takes the default routes.
func (r *rig) besideBridge(name string) (*network.Namespace, *attachment.Entry) {
	r.Helper()
	pod, bridge := network.New(r, name), network.New(r, "of-"+name)
	check.OK(r, bridge.AddBridge("br0"))
	check.OK(r, pod.SetUp("lo", true))
	check.OK(r, pod.Plug("eth0", nil, bridge, "port", "br0"))
	check.OK(r, pod.AddAddr("eth0", netip.MustParsePrefix("10.244.0.7/24")))
	check.OK(r, pod.AddRoute(netip.Prefix{}, netip.MustParseAddr("10.244.0.1")))
	e := r.attach(pod, name, "net1", "10.0.0.7/24")
	e.Routing.TakesDefault = true
	net1 := r.link(pod, "net1").Attrs().Index
	check.OK(r, pod.Links().RouteAppend(&netlink.Route{LinkIndex: net1, Gw: netip.MustParseAddr(routerAddr4).AsSlice()}))
	return pod, e
}

// A further interface of the underlay and a host link have default routes in tables of their own. These
// tables are not those of another network.
func TestTheDefaultRoutesOfTheUnderlayItselfStay(t *testing.T) {
	r := newRig(t)
	pod, first := r.besideBridge("a")
	second := r.attach(pod, "a", "net2", "10.0.0.8/24")
	first.Routing.HostLink, second.Routing.HostLink = true, true
	check.OK(r, r.links.Make(first))
	check.OK(r, r.links.Make(second))
	check.OK(r, r.links.Make(first)) // a repair
	for _, e := range []*attachment.Entry{first, second} {
		check.Is(t, r.links.Check(e), nil, "%s:", e.Interface)
	}
	routes := check.Value(pod.Links().RouteGet(netip.MustParseAddr("10.96.0.1").AsSlice()))(r)
	check.Equal(t, routes[0].LinkIndex, check.Value(pod.Index("eth0"))(r), "the Services are behind the interface")
	r.wantAnswers(pod, r.node, "10.0.0.7:80", "10.0.0.7:80", nodeAddr4)
	r.wantAnswers(pod, r.node, "10.0.0.8:80", "10.0.0.8:80", nodeAddr4)
}

// leaves returns the interface by which a frame from an address leaves the pod, to the router or to a
// host behind it.
func leaves(t *testing.T, pod *network.Namespace, source, to string) string {
	t.Helper()
	is4 := netip.MustParseAddr(source).Is4()
	dst := map[bool]string{true: routerAddr4, false: routerAddr6}[is4]
	if to == "far" {
		dst = map[bool]string{true: "192.0.2.9", false: "2001:db8::9"}[is4]
	}
	link, _ := leavesBy(t, pod, source, dst)
	return link
}

func TestCheckNamesWhatIsBrokenAndMakeMendsIt(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(r *rig, pod *network.Namespace)
		want  string
	}{
		{"the node's end is gone", func(r *rig, _ *network.Namespace) {
			check.OK(r, r.node.DeleteLink(NodeEnd(r.entries[0].Attachment())))
		}, "is missing"},
		{"the node's end is down", func(r *rig, _ *network.Namespace) {
			check.OK(r, r.node.SetUp(NodeEnd(r.entries[0].Attachment()), false))
		}, "is down"},
		{"the pod's end is down", func(r *rig, pod *network.Namespace) {
			check.OK(r, pod.SetUp("host-eth0", false))
		}, "link host-eth0 is down"},
		{"not guarded", func(r *rig, _ *network.Namespace) { clear(r.guards.linked) }, "is not guarded"},
		{"rp_filter", func(r *rig, _ *network.Namespace) {
			check.OK(r, r.node.Do(func() error {
				return os.WriteFile("/proc/sys/net/ipv4/conf/"+NodeEnd(r.entries[0].Attachment())+"/rp_filter", []byte("0"), 0)
			}))
		}, "rp_filter is not 2"},
		{"a route of the pod", func(r *rig, pod *network.Namespace) {
			check.OK(r, pod.Links().RouteDel(&netlink.Route{Dst: ipNet(netip.MustParsePrefix("10.96.0.0/16"))}))
		}, "route 10.96.0.0/16"},
		{"a route of the node", func(r *rig, _ *network.Namespace) {
			check.OK(r, r.node.Links().RouteDel(&netlink.Route{Scope: netlink.SCOPE_LINK, Dst: ipNet(netip.MustParsePrefix("10.0.0.7/32"))}))
		}, "route 10.0.0.7/32"},
		{"a rule of the pod", func(r *rig, pod *network.Namespace) {
			for _, rule := range check.Value(pod.Links().RuleList(unix.AF_INET))(r) {
				if rule.Mark != 0 {
					check.OK(r, pod.Links().RuleDel(&rule))
				}
			}
		}, "rule 100: from all fwmark"},
		{"the neighbour of the node", func(r *rig, _ *network.Namespace) {
			index := r.link(r.node, NodeEnd(r.entries[0].Attachment())).Attrs().Index
			check.OK(r, r.node.Links().NeighDel(&netlink.Neigh{LinkIndex: index, IP: netip.MustParseAddr("10.0.0.7").AsSlice()}))
		}, "neighbour 10.0.0.7"},
		{"the mark", func(r *rig, pod *network.Namespace) {
			check.OK(r, pod.Links().QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
				LinkIndex: r.link(pod, "host-eth0").Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
			}}))
		}, "does not mark"},
		{"the address of the pod's end", func(r *rig, pod *network.Namespace) {
			check.OK(r, pod.Links().AddrDel(r.link(pod, "host-eth0"), &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(podEnd6, 128))}))
		}, "host-eth0 does not have fe80::fe:2"},
		{"ARP at the pod's end", func(r *rig, pod *network.Namespace) {
			check.OK(r, pod.Links().LinkSetARPOn(r.link(pod, "host-eth0")))
		}, "host-eth0 has ARP"},
		{"the address", func(r *rig, pod *network.Namespace) {
			check.OK(r, pod.Links().AddrDel(r.link(pod, "eth0"), &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("10.0.0.7/24"))}))
		}, "interface eth0 does not have 10.0.0.7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, pod, e := linked(t, "10.0.0.7/24", "fd00::7/64")
			check.OK(r, r.links.Check(e))
			c.spoil(r, pod)
			check.Says(t, r.wantBroken(e), c.want)
			if c.name == "the address" {
				return // not ours to mend
			}
			check.OK(r, r.links.Repair())
			check.OK(r, r.links.Check(e))
			r.wantAnswers(r.node, pod, nodeAddr4+":80", nodeAddr4+":80", "10.0.0.7")
		})
	}
}

func TestTheNodeReachesTheNewHolderOfAFencedAddress(t *testing.T) {
	r, _, e := linked(t, "10.0.0.7/24")
	link := NodeEnd(e.Attachment())
	check.Equal(t, r.routeOf("10.0.0.7"), link, "the node reaches the pod by")
	r.guards.fence("10.0.0.7")
	check.OK(r, r.links.Repair())
	check.That(t, r.routeOf("10.0.0.7") != link, "the node still uses the host link of the fenced pod")
	r.guards.unfence("10.0.0.7") // a newer lease unfences the address
	check.OK(r, r.links.Repair())
	check.Equal(t, r.routeOf("10.0.0.7"), link, "the node reaches the pod by")
}

// While the API server is away, the agent asks for the lease of the fenced address all the time, and no
// repair gets the lock of the attachment.
func TestTheNodeReachesTheNewHolderWhileACallIsUnderWay(t *testing.T) {
	r, _, e := linked(t, "10.0.0.7/24", "fd00::7/64")
	link := NodeEnd(e.Attachment())
	r.run()
	want := func(addr string, linked bool) {
		t.Helper()
		check.Becomes(t, time.Minute, "the route to "+addr, func() bool { return (r.routeOf(addr) == link) == linked })
	}
	r.busy.Store(true)
	r.guards.fence("10.0.0.7")
	r.links.Wake(e.Attachment())
	want("10.0.0.7", false)
	want("fd00::7", true) // it is not fenced
	r.guards.unfence("10.0.0.7")
	r.busy.Store(false) // nobody wakes the links at the end of a call
	want("10.0.0.7", true)
}

// routeOf returns the link of the node's route to an address, "" if there is none.
func (r *rig) routeOf(addr string) string {
	routes, err := r.node.Links().RouteGet(netip.MustParseAddr(addr).AsSlice())
	if errors.Is(err, unix.ENETUNREACH) {
		return ""
	}
	check.OK(r, err)
	return check.Value(r.node.Links().LinkByIndex(routes[0].LinkIndex))(r).Attrs().Name
}

func TestNothingStaysOnTheNode(t *testing.T) {
	r := newRig(t)
	_, entries := r.pod("a", []string{"10.0.0.7/24"})
	_, others := r.pod("b", []string{"10.0.0.8/24"})
	check.OK(r, r.links.Make(entries[0]))
	check.OK(r, r.links.Make(others[0]))
	check.OK(r, r.links.Remove(entries[0]))
	check.OK(r, r.links.Remove(entries[0]))
	check.That(t, check.Err(r.node.Index(NodeEnd(entries[0].Attachment()))) != nil, "the link is still there")
	// The agent was killed before it removed the link.
	others[0].Phase = attachment.Releasing
	check.OK(r, r.links.Repair())
	check.That(t, check.Err(r.node.Index(NodeEnd(others[0].Attachment()))) != nil, "the link of a pod that has ended is still there")
}

// The journal is erased when Fenceline is uninstalled by force. Pods run on, and Fenceline comes back.
func TestALivingPodWithoutAnEntryKeepsItsHostLink(t *testing.T) {
	r, pod, _ := linked(t, "10.0.0.7/24", "fd00::7/64")
	r.entries = nil
	check.OK(r, r.links.Repair())
	r.wantAnswers(r.node, pod, nodeAddr4+":80", nodeAddr4+":80", "10.0.0.7")
}

// The journal was lost: the routing that is read from the pod is complete, and a repair with it changes
// nothing.
func TestTheRoutingOfAPodCanBeReadAgain(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.7/24", "fd00::7/64"}, []string{"10.0.0.8/24", "fd00::8/64"}, []string{"10.0.0.9/24"})
	entries[0].Routing.Listed = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	entries[2].Routing = nil
	for _, e := range entries {
		check.OK(r, r.links.Make(e))
	}
	ours := func() (all []Route) {
		for _, link := range check.Value(pod.Links().LinkList())(r) {
			all = append(all, check.Value(ownRoutes(pod.Links(), link))(r)...)
		}
		return all
	}
	before := ours()
	for _, e := range entries {
		was := e.Routing
		is := check.Value(r.links.Read(e))(r)
		if was == nil {
			check.That(t, is == nil, "%s: %+v, want none", e.Interface, is)
			continue
		}
		for _, p := range was.Listed {
			check.That(t, slices.Contains(is.Listed, p), "%s lacks %s behind the host link: %v", e.Interface, p, is.Listed)
		}
		listed := is.Listed
		is.Listed = was.Listed
		check.SameBy(t, cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}, is, was, "%s", e.Interface)
		is.Listed = listed
		e.Routing = is
		check.OK(r, r.links.Make(e))
		check.OK(r, r.links.Check(e))
	}
	check.List(t, ours(), before, "the routes are")
}

func TestAFailureLeavesNoHostLink(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.7/24"})
	nothingLeft := func() {
		check.That(t, check.Err(r.node.Index(NodeEnd(entries[0].Attachment()))) != nil, "the link is still there")
		check.That(t, check.Err(pod.Index("host-eth0")) != nil, "the pod's end is still there")
	}
	r.guards.fail = errors.New("no memory")
	check.Says(t, r.links.Make(entries[0]), "no memory")
	nothingLeft()
	// Another plugin of the chain has taken the address that the routes have as their source.
	r.guards.fail = nil
	check.OK(t, pod.Links().AddrDel(r.link(pod, "eth0"), &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("10.0.0.7/24"))}))
	check.Says(t, r.links.Make(entries[0]), "interface eth0 of pod default/a", "add route 10.96.0.0/16", "host-eth0")
	nothingLeft()
}

func TestRoutesFollowTheNodeAndTheServices(t *testing.T) {
	r, pod, _ := linked(t, "10.0.0.7/24")
	r.run()
	check.OK(r, r.node.AddAddr("mgmt0", netip.MustParsePrefix("172.30.0.99/24")))
	r.wantRoute(pod, "172.30.0.99/32", true)
	check.OK(r, r.node.Links().AddrDel(r.link(r.node, "mgmt0"), &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("172.30.0.99/24"))}))
	r.wantRoute(pod, "172.30.0.99/32", false)
}

func TestUnknownServicesTakeNoRoute(t *testing.T) {
	r, pod, _ := linked(t, "10.0.0.7/24")
	services := r.services
	r.services, r.unknown = nil, errors.New("the API server is away")
	check.OK(r, r.links.Repair())
	r.wantRoute(pod, "10.96.0.0/16", true)
	r.services, r.unknown = services[1:], nil
	check.OK(r, r.links.Repair())
	r.wantRoute(pod, "10.96.0.0/16", false)
}

// The macvlan plugin waits for the kernel's duplicate address detection only if there is a gateway.
func TestATentativeAddressIsNotTheSourceOfARoute(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.7/24"})
	e := entries[0]
	check.OK(r, pod.Links().AddrAdd(r.link(pod, "eth0"), &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("fd00::7/64"))}))
	e.Addresses = append(e.Addresses, attachment.Address{Addr: netip.MustParseAddr("fd00::7")})
	e.Routing.Subnets = append(e.Routing.Subnets, netip.MustParsePrefix("fd00::7/64"))
	check.OK(r, r.links.Make(e))
	check.Must(t, !r.links.due.Empty(), "the address is not tentative: this test shows nothing")
	r.run()
	check.Becomes(t, time.Minute, "the source of the route to the Services", func() bool {
		return r.has(pod, func(route Route) bool {
			return route.Dst == r.services[1] && route.Src == netip.MustParseAddr("fd00::7")
		})
	})
	check.OK(r, r.links.Check(e))
}

// has reports whether one of the pod's routes through its host link fits.
func (r *rig) has(pod *network.Namespace, fits func(Route) bool) bool {
	r.Helper()
	return slices.ContainsFunc(check.Value(ownRoutes(pod.Links(), r.link(pod, "host-eth0")))(r), fits)
}

// wantRoute waits until the pod has a route through its host link, or has it no more.
func (r *rig) wantRoute(pod *network.Namespace, dst string, want bool) {
	r.Helper()
	check.Becomes(r, time.Minute, fmt.Sprintf("route %s of the pod: %t", dst, want), func() bool {
		return r.has(pod, func(route Route) bool { return route.Dst == netip.MustParsePrefix(dst) }) == want
	})
}
