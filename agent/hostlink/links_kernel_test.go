// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package hostlink

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/test/network"
)

func TestAPodAndItsNodeReachEachOther(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.7/24", "fd00::7/64"})
	if _, err := answers(r.node, pod, nodeAddr4+":80", nodeAddr4+":80"); err == nil {
		t.Fatal("the pod reaches its node without a host link: this test shows nothing")
	}
	r.must(r.links.Make(entries[0]))
	r.wantAnswers(r.node, pod, nodeAddr4+":80", nodeAddr4+":80", "10.0.0.7")
	r.wantAnswers(r.node, pod, "["+nodeAddr6+"]:80", "["+nodeAddr6+"]:80", "fd00::7")
	r.wantAnswers(pod, r.node, ":80", "10.0.0.7:80", nodeAddr4)
	r.wantAnswers(pod, r.node, ":80", "[fd00::7]:80", nodeAddr6)
	// The rest stays on the underlay.
	r.wantAnswers(r.router, pod, routerAddr4+":80", routerAddr4+":80", "10.0.0.7")
	r.wantAnswers(pod, r.router, ":80", "10.0.0.7:80", routerAddr4)
	if err := r.links.Check(entries[0]); err != nil {
		t.Error(err)
	}
}

// A client that the node forwards to the pod keeps its address. The reply must go back through the
// node, which may have translated the destination.
func TestRepliesLeaveAsTheRequestCame(t *testing.T) {
	r := newRig(t)
	client := r.beyond()
	pod, entries := r.pod("a", []string{"10.0.0.7/24", "fd00::7/64"})
	// Some distributions check the way back of each source strictly.
	r.must(pod.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("1"), 0) }))
	r.must(r.links.Make(entries[0]))
	// The router does not know the client: a reply by the underlay is lost.
	r.wantAnswers(pod, client, ":80", "10.0.0.7:80", "192.0.2.9")
	r.wantAnswers(pod, client, ":80", "[fd00::7]:80", "2001:db8::9")
}

// beyond makes a client beyond the node, 192.0.2.9 and 2001:db8::9, which the router does not know.
func (r *rig) beyond() *network.Namespace {
	r.Helper()
	client := r.namespace("client")
	sw := r.namespace("sw2")
	r.must(sw.AddBridge("br0"))
	r.must(r.node.Plug("out0", nil, sw, "p-node", "br0"))
	r.must(client.Plug("eth0", nil, sw, "p-client", "br0"))
	r.must(r.node.AddAddr("out0", netip.MustParsePrefix("192.0.2.1/24")))
	r.must(r.node.AddAddr("out0", netip.MustParsePrefix("2001:db8::1/64")))
	r.must(client.AddAddr("eth0", netip.MustParsePrefix("192.0.2.9/24")))
	r.must(client.AddAddr("eth0", netip.MustParsePrefix("2001:db8::9/64")))
	link, err := client.Links().LinkByName("eth0")
	r.must(err)
	for _, gw := range []string{"192.0.2.1", "2001:db8::1"} {
		r.must(client.Links().RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: netip.MustParseAddr(gw).AsSlice()}))
	}
	r.must(r.node.Do(func() error {
		for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0); err != nil {
				return err
			}
		}
		return nil
	}))
	return client
}

func TestSecondInterfacesAnswerWhereTheyWereAsked(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.7/24", "fd00::7/64"}, []string{"10.0.0.8/24", "fd00::8/64"})
	for _, e := range entries {
		r.must(r.links.Make(e))
	}
	for source, want := range map[string]string{"10.0.0.7": "eth0", "10.0.0.8": "net1", "fd00::7": "eth0", "fd00::8": "net1"} {
		for _, to := range []string{"", "far"} {
			if on := leaves(t, pod, source, to); on != want {
				t.Errorf("a frame from %s %s leaves by %s, want %s", source, to, on, want)
			}
		}
	}
	for _, address := range []string{"10.0.0.8:80", "[fd00::8]:80", "10.0.0.7:80", "[fd00::7]:80"} {
		if _, err := answers(pod, r.router, ":80", address); err != nil {
			t.Errorf("router to %s: %v", address, err)
		}
	}
	for _, e := range entries {
		if err := r.links.Check(e); err != nil {
			t.Error(err)
		}
	}
}

// A bridge network has made eth0, and the annotation gives the default routes to the underlay.
func TestTheUnderlayTakesTheDefaultRoutes(t *testing.T) {
	r := newRig(t)
	pod, e := r.besideBridge("a")
	for range 2 { // a repair changes nothing
		r.must(r.links.Make(e))
		for _, c := range []struct{ from, to, want string }{
			{"", "192.0.2.9", "net1"}, {"", "10.96.0.1", "eth0"}, {"", nodeAddr4, "eth0"}, {"", "10.244.0.9", "eth0"},
			{"10.244.0.7", "192.0.2.9", "eth0"}, {"10.244.0.7", "10.244.0.9", "eth0"}, {"10.0.0.7", "192.0.2.9", "net1"},
		} {
			options := &netlink.RouteGetOptions{}
			if c.from != "" {
				options.SrcAddr = netip.MustParseAddr(c.from).AsSlice()
			}
			routes, err := pod.Links().RouteGetWithOptions(netip.MustParseAddr(c.to).AsSlice(), options)
			r.must(err)
			on, err := pod.Links().LinkByIndex(routes[0].LinkIndex)
			r.must(err)
			if on.Attrs().Name != c.want {
				t.Errorf("from %q to %s: leaves by %s, want %s", c.from, c.to, on.Attrs().Name, c.want)
			}
		}
	}
}

// besideBridge makes a pod whose eth0 a bridge network has made, and whose net1 takes the default routes.
func (r *rig) besideBridge(name string) (*network.Namespace, *journal.Entry) {
	r.Helper()
	pod, bridge := r.namespace(name), r.namespace("of-"+name)
	r.must(bridge.AddBridge("br0"))
	r.must(pod.SetUp("lo", true))
	r.must(pod.Plug("eth0", nil, bridge, "port", "br0"))
	r.must(pod.AddAddr("eth0", netip.MustParsePrefix("10.244.0.7/24")))
	link, err := pod.Links().LinkByName("eth0")
	r.must(err)
	r.must(pod.Links().RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: netip.MustParseAddr("10.244.0.1").AsSlice()}))
	e := r.attach(pod, name, "net1", "10.0.0.7/24")
	e.Routing.TakesDefault = true
	net1, err := pod.Links().LinkByName("net1")
	r.must(err)
	r.must(pod.Links().RouteAppend(&netlink.Route{LinkIndex: net1.Attrs().Index, Gw: netip.MustParseAddr(routerAddr4).AsSlice()}))
	return pod, e
}

// A further interface of the underlay and a host link have default routes in tables of their own. These
// tables are not those of another network.
func TestTheDefaultRoutesOfTheUnderlayItselfStay(t *testing.T) {
	r := newRig(t)
	pod, bridge := r.namespace("a"), r.namespace("bridge")
	r.must(bridge.AddBridge("br0"))
	r.must(pod.SetUp("lo", true))
	r.must(pod.Plug("eth0", nil, bridge, "port", "br0"))
	r.must(pod.AddAddr("eth0", netip.MustParsePrefix("10.244.0.7/24")))
	link, err := pod.Links().LinkByName("eth0")
	r.must(err)
	r.must(pod.Links().RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: netip.MustParseAddr("10.244.0.1").AsSlice()}))
	first, second := r.attach(pod, "a", "net1", "10.0.0.7/24"), r.attach(pod, "a", "net2", "10.0.0.8/24")
	first.Routing.TakesDefault, first.Routing.HostLink, second.Routing.HostLink = true, true, true
	net1, err := pod.Links().LinkByName("net1")
	r.must(err)
	r.must(pod.Links().RouteAppend(&netlink.Route{LinkIndex: net1.Attrs().Index, Gw: netip.MustParseAddr(routerAddr4).AsSlice()}))
	r.must(r.links.Make(first))
	r.must(r.links.Make(second))
	r.must(r.links.Make(first)) // a repair
	for _, e := range []*journal.Entry{first, second} {
		if err := r.links.Check(e); err != nil {
			t.Errorf("%s: %v", e.Interface, err)
		}
	}
	routes, err := pod.Links().RouteGet(netip.MustParseAddr("10.96.0.1").AsSlice())
	r.must(err)
	if routes[0].LinkIndex != link.Attrs().Index {
		t.Error("the Services are not behind eth0")
	}
	r.wantAnswers(pod, r.node, "10.0.0.7:80", "10.0.0.7:80", nodeAddr4)
	r.wantAnswers(pod, r.node, "10.0.0.8:80", "10.0.0.8:80", nodeAddr4)
}

// leaves returns the interface by which a frame from an address leaves the pod, to the router or to a
// host behind it.
func leaves(t *testing.T, pod *network.Namespace, source, to string) string {
	t.Helper()
	from := netip.MustParseAddr(source)
	dst := netip.MustParseAddr(map[bool]string{true: routerAddr4, false: routerAddr6}[from.Is4()])
	if to == "far" {
		dst = netip.MustParseAddr(map[bool]string{true: "192.0.2.9", false: "2001:db8::9"}[from.Is4()])
	}
	routes, err := pod.Links().RouteGetWithOptions(dst.AsSlice(), &netlink.RouteGetOptions{SrcAddr: from.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	link, err := pod.Links().LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Name
}

func TestCheckNamesWhatIsBrokenAndMakeMendsIt(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(r *rig, pod *network.Namespace)
		want  string
	}{
		{"the node's end is gone", func(r *rig, _ *network.Namespace) {
			r.must(r.node.DeleteLink(NodeEnd(r.entries[0].Attachment())))
		}, "is missing"},
		{"the node's end is down", func(r *rig, _ *network.Namespace) {
			r.must(r.node.SetUp(NodeEnd(r.entries[0].Attachment()), false))
		}, "is down"},
		{"the pod's end is down", func(r *rig, pod *network.Namespace) {
			r.must(pod.SetUp("host-eth0", false))
		}, "link host-eth0 is down"},
		{"not guarded", func(r *rig, _ *network.Namespace) { clear(r.guards.linked) }, "is not guarded"},
		{"rp_filter", func(r *rig, _ *network.Namespace) {
			r.must(r.node.Do(func() error {
				return os.WriteFile("/proc/sys/net/ipv4/conf/"+NodeEnd(r.entries[0].Attachment())+"/rp_filter", []byte("0"), 0)
			}))
		}, "rp_filter is not 1"},
		{"a route of the pod", func(r *rig, pod *network.Namespace) {
			r.must(pod.Links().RouteDel(&netlink.Route{Dst: ipNet(netip.MustParsePrefix("10.96.0.0/16"))}))
		}, "route 10.96.0.0/16"},
		{"a route of the node", func(r *rig, _ *network.Namespace) {
			r.must(r.node.Links().RouteDel(&netlink.Route{Scope: netlink.SCOPE_LINK, Dst: ipNet(netip.MustParsePrefix("10.0.0.7/32"))}))
		}, "route 10.0.0.7/32"},
		{"a rule of the pod", func(r *rig, pod *network.Namespace) {
			rules, err := pod.Links().RuleList(unix.AF_INET)
			r.must(err)
			for _, rule := range rules {
				if rule.Mark != 0 {
					r.must(pod.Links().RuleDel(&rule))
				}
			}
		}, "rule 100: from all fwmark"},
		{"the neighbour of the node", func(r *rig, _ *network.Namespace) {
			link, err := r.node.Links().LinkByName(NodeEnd(r.entries[0].Attachment()))
			r.must(err)
			r.must(r.node.Links().NeighDel(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: netip.MustParseAddr("10.0.0.7").AsSlice()}))
		}, "neighbour 10.0.0.7"},
		{"the mark", func(r *rig, pod *network.Namespace) {
			link, err := pod.Links().LinkByName("host-eth0")
			r.must(err)
			r.must(pod.Links().QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
				LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
			}}))
		}, "does not mark"},
		{"the address of the pod's end", func(r *rig, pod *network.Namespace) {
			link, err := pod.Links().LinkByName("host-eth0")
			r.must(err)
			r.must(pod.Links().AddrDel(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(podEnd6, 128))}))
		}, "host-eth0 does not have fe80::fe:2"},
		{"ARP at the pod's end", func(r *rig, pod *network.Namespace) {
			link, err := pod.Links().LinkByName("host-eth0")
			r.must(err)
			r.must(pod.Links().LinkSetARPOn(link))
		}, "host-eth0 has ARP"},
		{"the address", func(r *rig, pod *network.Namespace) {
			link, err := pod.Links().LinkByName("eth0")
			r.must(err)
			r.must(pod.Links().AddrDel(link, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("10.0.0.7/24"))}))
		}, "interface eth0 does not have 10.0.0.7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			pod, entries := r.pod("a", []string{"10.0.0.7/24", "fd00::7/64"})
			r.must(r.links.Make(entries[0]))
			r.must(r.links.Check(entries[0]))
			c.spoil(r, pod)
			if text := r.wantBroken(entries[0]); !strings.Contains(text, c.want) {
				t.Errorf("Check: %q, want %q", text, c.want)
			}
			if c.name == "the address" {
				return // not ours to mend
			}
			r.must(r.links.Repair())
			r.must(r.links.Check(entries[0]))
			r.wantAnswers(r.node, pod, nodeAddr4+":80", nodeAddr4+":80", "10.0.0.7")
		})
	}
}

func TestTheNodeReachesTheNewHolderOfAFencedAddress(t *testing.T) {
	r := newRig(t)
	_, entries := r.pod("a", []string{"10.0.0.7/24"})
	r.must(r.links.Make(entries[0]))
	link := NodeEnd(entries[0].Attachment())
	if on := r.routeOf("10.0.0.7"); on != link {
		t.Fatalf("the node reaches the pod by %q", on)
	}
	r.guards.fence("10.0.0.7")
	r.must(r.links.Repair())
	if on := r.routeOf("10.0.0.7"); on == link {
		t.Error("the node still uses the host link of the fenced pod")
	}
	r.guards.unfence("10.0.0.7") // a newer lease unfences the address
	r.must(r.links.Repair())
	if on := r.routeOf("10.0.0.7"); on != link {
		t.Errorf("the node reaches the pod by %q", on)
	}
}

// While the API server is away, the agent asks for the lease of the fenced address all the time, and no
// repair gets the lock of the attachment.
func TestTheNodeReachesTheNewHolderWhileACallIsUnderWay(t *testing.T) {
	r := newRig(t)
	_, entries := r.pod("a", []string{"10.0.0.7/24", "fd00::7/64"})
	r.must(r.links.Make(entries[0]))
	link := NodeEnd(entries[0].Attachment())
	r.run()
	want := func(addr string, linked bool) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for (r.routeOf(addr) == link) != linked {
			if time.Now().After(deadline) {
				t.Fatalf("the node reaches %s by %q", addr, r.routeOf(addr))
			}
			time.Sleep(time.Millisecond)
		}
	}
	r.busy.Store(true)
	r.guards.fence("10.0.0.7")
	r.links.Wake(entries[0].Attachment())
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
	r.must(err)
	link, err := r.node.Links().LinkByIndex(routes[0].LinkIndex)
	r.must(err)
	return link.Attrs().Name
}

func TestNothingStaysOnTheNode(t *testing.T) {
	r := newRig(t)
	_, entries := r.pod("a", []string{"10.0.0.7/24"})
	_, others := r.pod("b", []string{"10.0.0.8/24"})
	r.must(r.links.Make(entries[0]))
	r.must(r.links.Make(others[0]))
	r.must(r.links.Remove(entries[0]))
	r.must(r.links.Remove(entries[0]))
	if _, err := r.node.Index(NodeEnd(entries[0].Attachment())); err == nil {
		t.Error("the link is still there")
	}
	// The agent was killed before it removed the link.
	others[0].Phase = journal.Releasing
	r.must(r.links.Repair())
	if _, err := r.node.Index(NodeEnd(others[0].Attachment())); err == nil {
		t.Error("the link of a pod that has ended is still there")
	}
}

// The journal is erased when Fenceline is uninstalled by force. Pods run on, and Fenceline comes back.
func TestALivingPodWithoutAnEntryKeepsItsHostLink(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.7/24", "fd00::7/64"})
	r.must(r.links.Make(entries[0]))
	r.entries = nil
	r.must(r.links.Repair())
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
		r.must(r.links.Make(e))
	}
	ours := func() (all []Route) {
		links, err := pod.Links().LinkList()
		r.must(err)
		for _, link := range links {
			routes, err := ownRoutes(pod.Links(), link)
			r.must(err)
			all = append(all, routes...)
		}
		return all
	}
	before := ours()
	for _, e := range entries {
		was := e.Routing
		is, err := r.links.Read(e)
		r.must(err)
		if was == nil {
			if is != nil {
				t.Errorf("%s: %+v, want none", e.Interface, is)
			}
			continue
		}
		for _, p := range was.Listed {
			if !slices.Contains(is.Listed, p) {
				t.Errorf("%s lacks %s behind the host link: %v", e.Interface, p, is.Listed)
			}
		}
		listed := is.Listed
		is.Listed = was.Listed
		if diff := cmp.Diff(was, is, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
			t.Errorf("%s (-was +is):\n%s", e.Interface, diff)
		}
		is.Listed = listed
		e.Routing = is
		r.must(r.links.Make(e))
		r.must(r.links.Check(e))
	}
	if after := ours(); !slices.Equal(after, before) {
		t.Errorf("routes were\n%v\nand are\n%v", before, after)
	}
}

func TestAFailureLeavesNoHostLink(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.7/24"})
	r.guards.fail = errors.New("no memory")
	if err := r.links.Make(entries[0]); err == nil || !strings.Contains(err.Error(), "no memory") {
		t.Errorf("Make: %v", err)
	}
	if _, err := r.node.Index(NodeEnd(entries[0].Attachment())); err == nil {
		t.Error("the link is still there")
	}
	if _, err := pod.Index("host-eth0"); err == nil {
		t.Error("the pod's end is still there")
	}
}

func TestRoutesFollowTheNodeAndTheServices(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.7/24"})
	r.must(r.links.Make(entries[0]))
	r.run()
	r.must(r.node.AddAddr("mgmt0", netip.MustParsePrefix("172.30.0.99/24")))
	r.wantRoute(pod, "172.30.0.99/32", true)
	link, err := r.node.Links().LinkByName("mgmt0")
	r.must(err)
	r.must(r.node.Links().AddrDel(link, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("172.30.0.99/24"))}))
	r.wantRoute(pod, "172.30.0.99/32", false)
}

func TestUnknownServicesTakeNoRoute(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.7/24"})
	r.must(r.links.Make(entries[0]))
	services := r.services
	r.services, r.unknown = nil, errors.New("the API server is away")
	r.must(r.links.Repair())
	r.wantRoute(pod, "10.96.0.0/16", true)
	r.services, r.unknown = services[1:], nil
	r.must(r.links.Repair())
	r.wantRoute(pod, "10.96.0.0/16", false)
}

// The macvlan plugin waits for the kernel's duplicate address detection only if there is a gateway.
func TestATentativeAddressIsNotTheSourceOfARoute(t *testing.T) {
	r := newRig(t)
	pod, entries := r.pod("a", []string{"10.0.0.7/24"})
	e := entries[0]
	link, err := pod.Links().LinkByName("eth0")
	r.must(err)
	r.must(pod.Links().AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("fd00::7/64"))}))
	e.Addresses = append(e.Addresses, journal.Address{Addr: netip.MustParseAddr("fd00::7")})
	e.Routing.Subnets = append(e.Routing.Subnets, netip.MustParsePrefix("fd00::7/64"))
	r.must(r.links.Make(e))
	if r.links.due.Empty() {
		t.Fatal("the address is not tentative: this test shows nothing")
	}
	r.run()
	deadline := time.Now().Add(time.Minute)
	for !r.hasSource(pod, "fd96::/112", "fd00::7") {
		if time.Now().After(deadline) {
			t.Fatal("the route to the Services has no source")
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.must(r.links.Check(e))
}

// hasSource reports whether the pod's route through its host link has a source.
func (r *rig) hasSource(pod *network.Namespace, dst, source string) bool {
	r.Helper()
	link, err := pod.Links().LinkByName("host-eth0")
	r.must(err)
	routes, err := ownRoutes(pod.Links(), link)
	r.must(err)
	return slices.ContainsFunc(routes, func(route Route) bool {
		return route.Dst == netip.MustParsePrefix(dst) && route.Src == netip.MustParseAddr(source)
	})
}

// wantRoute waits until the pod has a route through its host link, or has it no more.
func (r *rig) wantRoute(pod *network.Namespace, dst string, want bool) {
	r.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		link, err := pod.Links().LinkByName("host-eth0")
		r.must(err)
		routes, err := ownRoutes(pod.Links(), link)
		r.must(err)
		found := false
		for _, route := range routes {
			found = found || route.Dst == netip.MustParsePrefix(dst)
		}
		if found == want {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("route %s of the pod: %v, want %v", dst, found, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
