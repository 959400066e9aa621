// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// routed adds routes as "dst gw" or "dst".
func (p *poolOf) routed(routes ...string) *poolOf {
	for _, r := range routes {
		dst, gw, _ := strings.Cut(r, " ")
		p.Spec.Routes = append(p.Spec.Routes, v1alpha1.Route{Dst: dst, Gw: gw})
	}
	return p
}

// routes returns what the first pool of each family gives, as "dst gw, dst".
func routes(t *testing.T, c Choice) string {
	t.Helper()
	var all []string
	for _, f := range c.Families {
		got := check.Value(f.RoutesThrough(f.Pools[0].Pool))(t)
		for _, r := range got {
			text := r.Dst.String()
			if r.Gateway.IsValid() {
				text += " " + r.Gateway.String()
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, ", ")
}

const (
	routesAnnotation = "ipam.fenceline.io/routes"
	nicAnnotation    = "ipam.fenceline.io/default-route-nic"
	poolsAnnotation  = "ipam.fenceline.io/ippools"
)

func TestRoutesOfAnInterface(t *testing.T) {
	a := v4("a").gateway("10.0.0.1")
	six := v6("six").gateway("fd00::1")
	lan := pool("lan", "10.1.0.0/24").gateway("10.1.0.1")
	dual, second := inConfig([]string{"a"}, []string{"six"}), inConfig([]string{"lan"}, nil)
	networks := onPod(multusNetworks, "lan, lan")
	net1, net2 := onInterface("net1", has("eth0", "10.0.0.0/24", "fd00::/64")), onInterface("net2", has("eth0", "10.0.0.0/24"), has("net1", "10.1.0.0/24"))
	afterOther := onInterface("net1")
	via := func(value string) func(*Request) { return onPod(routesAnnotation, value) }
	clean := onPod(poolsAnnotation, `[{"interface":"eth0","ipv4":["a"],"cleangateway":true},{"interface":"net1","ipv4":["lan"]}]`)

	for _, c := range []struct {
		rule    string
		pools   []*poolOf
		request Request
		want    string
	}{
		{"the gateway is the default route of its family", []*poolOf{a, six}, requestOf(dual), "0.0.0.0/0, ::/0"},
		{"without a gateway there is none", []*poolOf{v4("a")}, requestOf(inConfig([]string{"a"}, nil)), ""},
		{"routes of the pool follow", []*poolOf{v4("a").gateway("10.0.0.1").routed("10.8.0.0/16 10.0.0.2", "10.9.0.0/16")},
			requestOf(inConfig([]string{"a"}, nil)), "0.0.0.0/0, 10.8.0.0/16 10.0.0.2, 10.9.0.0/16"},
		{"a default route of a pool without gateway", []*poolOf{v4("a").routed("0.0.0.0/0 10.0.0.2")},
			requestOf(inConfig([]string{"a"}, nil)), "0.0.0.0/0 10.0.0.2"},
		{"the gateway goes before a default route of its pool", []*poolOf{v4("a").gateway("10.0.0.1").routed("0.0.0.0/0 10.0.0.2")},
			requestOf(inConfig([]string{"a"}, nil)), "0.0.0.0/0"},

		{"cleangateway leaves the default route out", []*poolOf{a, lan}, requestOf(clean), ""},
		{"cleangateway leaves a default route of the pool out", []*poolOf{v4("a").routed("0.0.0.0/0 10.0.0.2", "10.8.0.0/16 10.0.0.2"), lan}, requestOf(clean), "10.8.0.0/16 10.0.0.2"},
		{"after a clean interface the next one has the default route", []*poolOf{a, lan}, requestOf(clean, networks, net1), "0.0.0.0/0"},
		{"and the one after that has none", []*poolOf{a, lan}, requestOf(clean, networks, net2, second), ""},
		{"cleangateway by order", []*poolOf{a}, requestOf(onPod(poolsAnnotation, `[{"ipv4":["a"],"cleangateway":true}]`)), ""},
		{"the interface after a clean one by order", []*poolOf{a, lan}, requestOf(networks, net1,
			onPod(poolsAnnotation, `[{"ipv4":["a"],"cleangateway":true},{"ipv4":["lan"]}]`)), "0.0.0.0/0"},
		{"an entry by order says nothing of an interface of another IPAM", []*poolOf{a, lan}, requestOf(networks, afterOther,
			onPod(poolsAnnotation, `[{"ipv4":["lan"],"cleangateway":false}]`)), ""},

		{"eth0 has the default route", []*poolOf{a, lan}, requestOf(networks, inConfig([]string{"a"}, nil)), "0.0.0.0/0"},
		{"later interfaces have none", []*poolOf{a, lan}, requestOf(networks, net1, second), ""},
		{"not even where eth0 is of another IPAM", []*poolOf{lan}, requestOf(networks, afterOther, second), ""},
		{"an interface of which the pod says nothing has none", []*poolOf{lan}, requestOf(afterOther, second), ""},
		{"default-route-nic names it", []*poolOf{lan}, requestOf(networks, net1, second, onPod(nicAnnotation, "net1")), "0.0.0.0/0"},
		{"and all others have none", []*poolOf{a, six}, requestOf(networks, dual, onPod(nicAnnotation, "net1")), ""},
		{"the other prefix names it as well", []*poolOf{a}, requestOf(networks, inConfig([]string{"a"}, nil), onPod("ipam.spidernet.io/default-route-nic", "net1")), ""},
		{"a clean gateway goes before default-route-nic", []*poolOf{a, lan}, requestOf(clean, onPod(nicAnnotation, "eth0")), ""},

		{"routes of the pod", []*poolOf{a}, requestOf(inConfig([]string{"a"}, nil), via(`[{"dst":"10.8.0.0/16","gw":"10.0.0.2"}]`)), "0.0.0.0/0, 10.8.0.0/16 10.0.0.2"},
		{"routes of the pod, of each family", []*poolOf{a, six}, requestOf(dual, via(`[{"dst":"fd08::/16","gw":"fd00::2"},{"dst":"10.8.0.0/16","gw":"10.0.0.2"}]`)),
			"0.0.0.0/0, 10.8.0.0/16 10.0.0.2, ::/0, fd08::/16 fd00::2"},
		{"a link-local gateway", []*poolOf{six}, requestOf(inConfig(nil, []string{"six"}), via(`[{"dst":"fd08::/16","gw":"fe80::1"}]`)), "::/0, fd08::/16 fe80::1"},
		{"a route of the pod replaces that of the pool", []*poolOf{v4("a").routed("10.8.0.0/16 10.0.0.3")},
			requestOf(inConfig([]string{"a"}, nil), via(`[{"dst":"10.8.0.0/16","gw":"10.0.0.2"}]`)), "10.8.0.0/16 10.0.0.2"},
		{"a default route of the pod replaces the gateway", []*poolOf{a, six}, requestOf(dual, via(`[{"dst":"0.0.0.0/0","gw":"10.0.0.2"}]`)), "0.0.0.0/0 10.0.0.2, ::/0"},
		{"also where it goes through a later interface", []*poolOf{a, six}, requestOf(dual, networks, via(`[{"dst":"0.0.0.0/0","gw":"10.1.0.2"}]`)), "::/0"},
		{"which gets it", []*poolOf{lan}, requestOf(second, networks, net1, via(`[{"dst":"0.0.0.0/0","gw":"10.1.0.2"}]`)), "0.0.0.0/0 10.1.0.2"},
		{"a route belongs to the interface that has its gateway", []*poolOf{a}, requestOf(inConfig([]string{"a"}, nil), networks, via(`[{"dst":"10.8.0.0/16","gw":"10.1.0.2"}]`)), "0.0.0.0/0"},
		{"a later one", []*poolOf{lan}, requestOf(second, networks, net1, via(`[{"dst":"10.8.0.0/16","gw":"10.1.0.2"}]`)), "10.8.0.0/16 10.1.0.2"},
		{"and to the first that has it", []*poolOf{lan}, requestOf(second, networks, net2, via(`[{"dst":"10.8.0.0/16","gw":"10.1.0.2"}]`)), ""},
		{"a route of a family that a later interface may have", []*poolOf{a}, requestOf(inConfig([]string{"a"}, nil), networks, via(`[{"dst":"fd08::/16","gw":"fd00::2"}]`)), "0.0.0.0/0"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got := check.Value(ChoosePools(c.request, objects(c.pools...), poolset.Set{}))(t)
			check.Equal(t, routes(t, got), c.want, "got")
		})
	}
}

func TestAPoolThatDoesNotReachAGatewayCannotServe(t *testing.T) {
	via := onPod(routesAnnotation, `[{"dst":"10.8.0.0/16","gw":"10.1.0.2"}]`)
	got, err := ChoosePools(requestOf(via, inConfig([]string{"a", "lan"}, nil)), objects(v4("a"), pool("lan", "10.1.0.0/24")), poolset.Set{})
	check.Must(t, err == nil && names(got) == "v4: lan", "got %q, %v", names(got), err)
	const want = "its subnet 10.0.0.0/24 does not have gw 10.1.0.2 of annotation ipam.fenceline.io/routes"
	r := got.Families[0].Rejected
	check.That(t, len(r) == 1 && r[0].Pool == "a" && r[0].Reason == NoNextHop && r[0].Detail == want, "rejected %v", r)
}

func TestRoutesThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct{ rule, annotation, value, problem string }{
		{"no JSON", routesAnnotation, "10.0.0.0/8 via 10.0.0.1", "not the JSON expected"},
		{"an object in place of the list", routesAnnotation, `{"dst":"10.8.0.0/16","gw":"10.0.0.2"}`, "not the JSON expected"},
		{"an unknown field", routesAnnotation, `[{"dst":"10.8.0.0/16","via":"10.0.0.2"}]`, `json: unknown field "via"`},
		{"no dst", routesAnnotation, `[{"gw":"10.0.0.2"}]`, `entry 0: dst: "" is not a CIDR`},
		{"no gw", routesAnnotation, `[{"dst":"10.8.0.0/16"}]`, "entry 0 has no gw"},
		{"a dst that is no CIDR", routesAnnotation, `[{"dst":"10.8.0.0","gw":"10.0.0.2"}]`, `entry 0: dst: "10.8.0.0" is not a CIDR`},
		{"a dst with host bits", routesAnnotation, `[{"dst":"10.8.0.1/16","gw":"10.0.0.2"}]`, "entry 0: dst: CIDR 10.8.0.1/16 has host bits set, write 10.8.0.0/16"},
		{"a gw that is no address", routesAnnotation, `[{"dst":"10.9.0.0/16","gw":"10.0.0.2"},{"dst":"10.8.0.0/16","gw":"router"}]`, `entry 1: gw: "router" is not an IP address`},
		{"two families in one route", routesAnnotation, `[{"dst":"10.8.0.0/16","gw":"fd00::2"}]`, "entry 0: gw fd00::2 is not of the family of dst 10.8.0.0/16"},
		{"one dst twice", routesAnnotation, `[{"dst":"10.8.0.0/16","gw":"10.0.0.2"},{"dst":"10.8.0.0/16","gw":"10.0.0.3"}]`, "10.8.0.0/16 is named twice"},
		{"a family that the pod has no address of", routesAnnotation, `[{"dst":"fd08::/16","gw":"fd00::2"}]`, "gw fd00::2: pod shop/web-0 interface eth0 gets no address of this family"},
		{"a gateway in no subnet", routesAnnotation, `[{"dst":"10.8.0.0/16","gw":"10.5.0.2"}]`, "gw 10.5.0.2 is outside the subnets of the pools [a] of pod shop/web-0 interface eth0"},
		{"more than anybody writes", routesAnnotation, "[" + strings.Repeat(`{"dst":"10.8.0.0/16","gw":"10.0.0.2"},`, 256) + `{"dst":"10.8.0.0/16","gw":"10.0.0.2"}]`, "it has 257 entries, more than 256"},
		{"no interface", nicAnnotation, "", "it names no interface"},
		{"no name of an interface", nicAnnotation, `"eth0"`, `"\"eth0\"" is not the name of an interface`},
		{"a name that is too long", nicAnnotation, "an-interface-net", `"an-interface-net" is not the name of an interface`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := ChoosePools(requestOf(onPod(c.annotation, c.value), inConfig([]string{"a"}, nil)), objects(v4("a")), poolset.Set{})
			bad, ok := errors.AsType[*AnnotationError](err)
			check.Must(t, ok && bad.Annotation == c.annotation && bad.Value == c.value, "got %v", err)
			check.Says(t, err, c.problem)
		})
	}
}

func TestRoutesThatTakePacketsFromTheirProperWay(t *testing.T) {
	prefixes := func(all ...string) (found []netip.Prefix) {
		for _, p := range all {
			found = append(found, netip.MustParsePrefix(p))
		}
		return found
	}
	near := Nearby{Services: prefixes("10.96.0.0/12", "fd00:96::/108"), Node: prefixes("172.16.4.0/22", "fd00:16::/64")}
	const first, other = true, false // the interface of the default route, and another one
	for name, c := range map[string]struct {
		dst, gw, subnet string
		isDefault       bool
		hasGateway      bool
		want            string // "": none
	}{
		"a default route":         {"0.0.0.0/0", "10.0.0.1", "10.0.0.0/24", other, true, ""},
		"a default route of IPv6": {"::/0", "fd00::1", "fd00::/64", other, true, ""},
		"another network":         {"192.168.0.0/16", "10.0.0.1", "10.0.0.0/24", other, true, ""},

		"the service CIDR": {"10.96.0.0/12", "10.0.0.1", "10.0.0.0/24", first, true,
			"route 10.96.0.0/12 via 10.0.0.1 takes packets from the service CIDR 10.96.0.0/12"},
		"a part of the service CIDR": {"10.100.0.0/16", "10.0.0.1", "10.0.0.0/24", first, true,
			"route 10.100.0.0/16 via 10.0.0.1 takes packets from the service CIDR 10.96.0.0/12"},
		"one Service, on link": {"10.96.0.10/32", "", "10.0.0.0/24", first, false,
			"route 10.96.0.10/32 takes packets from the service CIDR 10.96.0.0/12"},
		"a part of the service CIDR of IPv6": {"fd00:96::/112", "fd00::1", "fd00::/64", first, true,
			"route fd00:96::/112 via fd00::1 takes packets from the service CIDR fd00:96::/108"},
		"more than the service CIDR, beside the default route": {"10.0.0.0/8", "10.0.0.1", "10.0.0.0/24", first, true, ""},
		"more than the service CIDR, on another interface": {"10.0.0.0/8", "10.0.0.1", "10.0.0.0/24", other, true,
			"route 10.0.0.0/8 via 10.0.0.1 takes packets from the service CIDR 10.96.0.0/12"},

		"the node's subnet": {"172.16.4.0/22", "10.0.0.1", "10.0.0.0/24", first, true,
			"route 172.16.4.0/22 via 10.0.0.1 takes packets from the subnet of the node 172.16.4.0/22"},
		"a part of the node's subnet": {"172.16.5.0/24", "10.0.0.1", "10.0.0.0/24", first, true,
			"route 172.16.5.0/24 via 10.0.0.1 takes packets from the subnet of the node 172.16.4.0/22"},
		"more than the node's subnet, beside the default route": {"172.16.0.0/12", "10.0.0.1", "10.0.0.0/24", first, true, ""},
		"more than the node's subnet, on another interface": {"172.16.0.0/12", "10.0.0.1", "10.0.0.0/24", other, true,
			"route 172.16.0.0/12 via 10.0.0.1 takes packets from the subnet of the node 172.16.4.0/22"},
		"a neighbour of the node's subnet": {"172.16.8.0/22", "10.0.0.1", "10.0.0.0/24", other, true, ""},

		"the pool's subnet": {"192.168.5.0/24", "192.168.5.1", "192.168.5.0/24", first, true,
			"route 192.168.5.0/24 via 192.168.5.1 takes packets from the subnet of the pool 192.168.5.0/24"},
		"a part of it through the pool's gateway": {"192.168.5.128/25", "", "192.168.5.0/24", other, true,
			"route 192.168.5.128/25 takes packets from the subnet of the pool 192.168.5.0/24"},
		"a part of it on link":                       {"192.168.5.128/25", "", "192.168.5.0/24", other, false, ""},
		"more than it, on the default interface":     {"192.168.0.0/16", "192.168.5.1", "192.168.5.0/24", first, true, ""},
		"more than it, on another interface":         {"192.168.0.0/16", "192.168.5.1", "192.168.5.0/24", other, true, ""},
		"node and pool have one subnet, and a wider": {"172.16.0.0/12", "172.16.4.1", "172.16.4.0/22", other, true, ""},
		"node and pool have one subnet, and a part": {"172.16.5.0/24", "172.16.4.1", "172.16.4.0/22", other, true,
			"route 172.16.5.0/24 via 172.16.4.1 takes packets from the subnet of the pool 172.16.4.0/22"},
	} {
		t.Run(name, func(t *testing.T) {
			r := poolset.Route{Dst: netip.MustParsePrefix(c.dst)}
			if c.gw != "" {
				r.Gateway = netip.MustParseAddr(c.gw)
			}
			on := Uplink{Subnet: netip.MustParsePrefix(c.subnet), Gateway: c.hasGateway, Default: c.isDefault}
			harmless := poolset.Route{Dst: netip.MustParsePrefix("198.51.100.0/24")}
			h, ok := Hijacked([]poolset.Route{harmless, r}, on, near)
			check.That(t, ok == (c.want != "") && (!ok || h.String() == c.want), "got %q %v, want %q", h, ok, c.want)
		})
	}
}

const modeKey, linkKey = "ipam.fenceline.io/mode", "ipam.fenceline.io/host-link"

func TestRoutingOfAnInterface(t *testing.T) {
	yes, no := true, false
	configured := agentapi.Routing{
		Mode: agentapi.ModeUnderlay, HostLink: &yes, HostLinkCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, TxQueueLen: 9,
	}
	for _, c := range []struct {
		rule       string
		mode, link string
		iface      string
		wantMode   agentapi.Mode
		wantLink   *bool
	}{
		{rule: "without annotations, the network decides", wantMode: "underlay", wantLink: &yes},
		{rule: "a plain mode is for every interface", mode: "overlay", iface: "net1", wantMode: "overlay", wantLink: &yes},
		{rule: "an entry is for its interface", mode: `[{"interface":"net1","mode":"overlay"}]`, iface: "net1", wantMode: "overlay", wantLink: &yes},
		{rule: "an entry is for no other interface", mode: `[{"interface":"net1","mode":"off"}]`, wantMode: "underlay", wantLink: &yes},
		{rule: "no host link", link: "false", wantMode: "underlay", wantLink: &no},
		{rule: "a host link for one interface", link: `[{"interface":"eth0","hostLink":false},{"interface":"net1","hostLink":true}]`, wantMode: "underlay", wantLink: &no},
		{rule: "off makes no host link", mode: "off", wantMode: "off"},
		{rule: "off, and no host link", mode: "off", link: "false", wantMode: "off"},
		{rule: "a host link for another interface than the one that is off", mode: `[{"interface":"net1","mode":"off"}]`,
			link: `[{"interface":"eth0","hostLink":true}]`, iface: "net1", wantMode: "off"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			annotations := map[string]string{}
			for key, value := range map[string]string{modeKey: c.mode, linkKey: c.link} {
				if value != "" {
					annotations[key] = value
				}
			}
			if c.iface == "" {
				c.iface = "eth0"
			}
			want := configured
			want.Mode, want.HostLink = c.wantMode, c.wantLink
			got, err := RoutingOf(podWith(annotations), c.iface, configured)
			check.That(t, err == nil && reflect.DeepEqual(got, want), "got %+v, %v, want %+v", got, err, want)
		})
	}
}

func TestTheOtherPrefixNamesARoutingToo(t *testing.T) {
	got, err := RoutingOf(podWith(map[string]string{"ipam.spidernet.io/mode": "overlay", "ipam.spidernet.io/host-link": "yes", linkKey: "true"}), "eth0", agentapi.Routing{})
	check.That(t, err == nil && got.Mode == agentapi.ModeOverlay && got.HostLink != nil && *got.HostLink, "got %+v, %v", got, err)
}

func TestAHostLinkInModeOffIsRefused(t *testing.T) {
	for rule, annotations := range map[string]map[string]string{
		"the network is off": {linkKey: "true"},
		"the pod is off":     {linkKey: "true", modeKey: "off"},
	} {
		_, err := RoutingOf(podWith(annotations), "eth0", agentapi.Routing{Mode: agentapi.ModeOff})
		bad := (*AnnotationError)(nil)
		check.That(t, errors.As(err, &bad) && bad.Annotation == linkKey && strings.Contains(err.Error(), "mode off"), "%s: %v", rule, err)
	}
}

// The IPAM ADD refuses what the chained ADD would refuse, before there is an address.
func TestARoutingThatCannotBeUsedGetsNoAddress(t *testing.T) {
	for _, c := range []struct{ rule, annotation, value, problem string }{
		{"an unknown mode", modeKey, `bridge`, `"bridge" is not one of the modes ["auto" "underlay" "overlay" "off"]`},
		{"an empty mode", modeKey, ``, `"" is not one of the modes`},
		{"a mode in quotation marks", modeKey, `"off"`, `is not one of the modes`},
		{"an unknown mode of one interface", modeKey, `[{"interface":"eth0","mode":"disable"}]`, `"disable" is not one of the modes`},
		{"an entry without interface", modeKey, `[{"mode":"off"}]`, "entry 0 names no interface"},
		{"an unknown field", modeKey, `[{"interface":"eth0","mode":"off","hostLink":true}]`, `unknown field "hostLink"`},
		{"an empty list", modeKey, `[]`, "the list has 0 entries"},
		{"an interface named twice", modeKey, `[{"interface":"eth0","mode":"off"},{"interface":"eth0","mode":"auto"}]`, "interface eth0 is named twice"},
		{"an interface that no pod has", modeKey, `[{"interface":"eth 0","mode":"off"}]`, `"eth 0" is not the name of an interface`},
		{"more entries than a pod has interfaces", modeKey, "[" + strings.Repeat(`{"interface":"a","mode":"off"},`, 256) + `{"interface":"a","mode":"off"}]`, "the list has 257 entries"},
		{"a word for true", linkKey, `yes`, "it is neither true nor false"},
		{"no word", linkKey, ``, "it is neither true nor false"},
		{"an entry without value", linkKey, `[{"interface":"eth0"}]`, "entry 0 has no hostLink"},
		{"text for true", linkKey, `[{"interface":"eth0","hostLink":"true"}]`, "not the JSON expected"},
		{"an interface that this pod has not", linkKey, `[{"interface":"net7","hostLink":true}]`, `the pod has no interface net7, its annotations name ["eth0" "net1"]`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			request := requestOf(onPod(c.annotation, c.value), onPod(multusNetworks, "blue"))
			_, err := ChoosePools(request, objects(v4("a").asDefault()), poolset.Set{})
			bad := (*AnnotationError)(nil)
			check.Must(t, errors.As(err, &bad), "got %v, want an AnnotationError", err)
			check.Says(t, err, c.annotation, "pod shop/web-0", c.problem, "; expected the form "+bad.Expected)
		})
	}
}
