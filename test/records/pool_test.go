// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/reclaim"
	"github.com/fenceline/fenceline/test/check"
)

// fields is a spec as a person writes it, with the mistakes that Go's types rule out.
type fields map[string]any

func record(kind, name string, spec fields) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any(spec),
	}}
}

func macs(prefix string) map[string]any { return map[string]any{"type": "FromIP", "prefix": prefix} }

func (e *env) testPoolsAccepted(t *testing.T) {
	for name, spec := range map[string]fields{
		"IPv4, a subnet alone":           {"subnet": "10.1.0.0/24"},
		"IPv6, a subnet alone":           {"subnet": "fd00:1::/64"},
		"one address":                    {"subnet": "10.1.0.7/32"},
		"ranges, CIDRs, single":          {"subnet": "10.1.0.0/16", "ips": list("10.1.0.9-10.1.0.10", "10.1.2.0/24", "10.1.3.4", "10.1.4.4-10.1.4.4", "10.1.255.200-10.1.255.201")},
		"IPv6 addresses":                 {"subnet": "fd00:1::/64", "ips": list("fd00:1::10-fd00:1::ffff", "fd00:1::5", "fd00:1:0:0:1::/80"), "gateway": "fd00:1::1"},
		"a link-local gateway of IPv6":   {"subnet": "fd00:1::/64", "gateway": "fe80::1", "gatewayCheck": true},
		"subnets beside reserved ranges": {"subnet": "64:ff9b::/96"},
		"a range that ends before it starts, which the controller reports": {"subnet": "10.1.0.0/24", "ips": list("10.1.0.20-10.1.0.3"), "excludeIPs": list("10.1.0.9-10.1.0.8")},
		"excluded addresses": {"subnet": "10.1.0.0/24", "excludeIPs": list("10.1.0.5", "10.1.0.250-10.1.0.254")},
		"as Spiderpool has it": {
			"subnet": "10.1.0.0/24", "ipVersion": int64(4), "ips": list("10.1.0.40-10.1.0.50"), "gateway": "10.1.0.1", "vlan": int64(0),
			"default": true, "disable": false, "routes": []any{map[string]any{"dst": "192.168.0.0/16", "gw": "10.1.0.2"}},
			"nodeName": list("n1"), "namespaceName": list("default"), "multusName": list("kube-system/macvlan-ens192"),
			"podAffinity": map[string]any{"matchLabels": map[string]any{"app": "a"}},
		},
		"durations as Go writes them": {
			"subnet": "10.1.0.0/24", "conflictDetection": map[string]any{"interval": "1.5s"},
			"reclaim": map[string]any{"extraGrace": "1m0s", "cooldown": "0s"}, "retention": map[string]any{"max": "8760h0m0s"},
		},
		"durations of fractions as Go writes them": {
			"subnet": "10.1.0.0/24", "conflictDetection": map[string]any{"interval": "50.000000001ms"},
			"reclaim": map[string]any{"extraGrace": "100µs", "cooldown": "1m59.123456789s"}, "retention": map[string]any{"max": "12345h40m44.0832s"},
		},
		"every mode of detection": {"subnet": "10.1.0.0/24", "conflictDetection": map[string]any{"mode": "Off", "probes": int64(10)}},
		"a MAC in either case":    {"subnet": "10.1.0.0/24", "conflictDetection": map[string]any{"ignoreMACs": list("02:00:00:00:00:0a", "02:00:00:00:00:0B")}},
		"checks at ADD":           {"subnet": "10.1.0.0/24", "gateway": "10.1.0.1", "gatewayCheck": true, "routeCheck": false},
		"a MAC from the address":  {"subnet": "10.1.0.0/24", "macPolicy": macs("0a:58")},
		"a source guard":          {"subnet": "10.1.0.0/24", "sourceGuard": "Observe"},
		"a network's routers":     {"subnet": "fd00::/64", "routerAdvertisements": "Accept"},
		"a source guard of routers": {"subnet": "10.1.0.0/24", "sourceGuardAllow": map[string]any{
			"cidrs": list("10.1.0.1/32", "0.0.0.0/0", "fd00:1::/64"), "macs": list("00:00:5e:00:01:01", "00:00:5E:00:02:0A"),
			"roles": list("Router", "DHCPServer", "Tagged", "Bridge", "DirectTransmit"),
		}},
		"a network":                      {"subnet": "10.1.0.0/24", "network": "lab-2"},
		"4096 addresses":                 {"subnet": "10.0.0.0/8", "ips": many(4096), "excludeIPs": many(4096)},
		"4096 ranges of the widest form": {"subnet": "fd00:1::/64", "ips": widest(4096), "excludeIPs": widest(4096)},
		"4096 CIDRs of the widest form":  {"subnet": "fd00:1::/64", "ips": widestCIDRs(4096)},
	} {
		t.Run(name, func(t *testing.T) {
			check.Is(t, e.admin.Create(t.Context(), record("IPPool", "pool", spec), client.DryRunAll), nil, "got")
		})
	}
}

func (e *env) testPoolsRefused(t *testing.T) {
	with := func(field string, value any) fields { return fields{"subnet": "10.1.0.0/24", field: value} }
	detection := func(field string, value any) fields { return with("conflictDetection", map[string]any{field: value}) }
	allow := func(field, value string) fields { return with("sourceGuardAllow", map[string]any{field: list(value)}) }
	route := func(r map[string]any) fields { return with("routes", []any{r}) }

	for name, c := range map[string]struct {
		spec fields
		want string // the sentence
		// field is set where the sentence is that of a type that several fields have.
		field string
	}{
		"no subnet":                                 {fields{}, "spec.subnet: Required value", ""},
		"subnet is no CIDR":                         {fields{"subnet": "10.1.0.0"}, ": 10.1.0.0 is not a CIDR", "spec.subnet"},
		"subnet has host bits set":                  {fields{"subnet": "10.1.0.1/24"}, ": 10.1.0.1/24 has host bits set", "spec.subnet"},
		"IPv6 subnet has host bits set":             {fields{"subnet": "fd00::1/64"}, ": fd00::1/64 has host bits set", "spec.subnet"},
		"ipVersion is not the subnet's":             {with("ipVersion", int64(6)), "ipVersion 6 is not the version of subnet 10.1.0.0/24", ""},
		"ipVersion 4 of an IPv6 subnet":             {fields{"subnet": "fd00::/64", "ipVersion": int64(4)}, "ipVersion 4 is not the version of subnet fd00::/64", ""},
		"ipVersion is neither 4 nor 6":              {with("ipVersion", int64(5)), "spec.ipVersion: Unsupported value: 5", ""},
		"gateway is no address":                     {with("gateway", "10.1.0.0/24"), ": 10.1.0.0/24 is not an IP address", "spec.gateway"},
		"gateway outside subnet":                    {with("gateway", "10.1.1.1"), "gateway 10.1.1.1 lies outside subnet 10.1.0.0/24", ""},
		"gateway of the other IP version":           {with("gateway", "fd00::1"), "gateway fd00::1 lies outside subnet 10.1.0.0/24", ""},
		"a link-local gateway of IPv4":              {with("gateway", "169.254.0.1"), "gateway 169.254.0.1 lies outside subnet 10.1.0.0/24", ""},
		"a link-local gateway of the other version": {with("gateway", "fe80::1"), "gateway fe80::1 lies outside subnet 10.1.0.0/24", ""},
		"subnet 127.0.0.0/24":                       {fields{"subnet": "127.0.0.0/24"}, ": 127.0.0.0/24 has addresses that no pod can have: 127.0.0.0/8 (loopback)", "spec.subnet"},
		"subnet 169.254.0.0/24":                     {fields{"subnet": "169.254.0.0/24"}, ": 169.254.0.0/24 has addresses that no pod can have: 169.254.0.0/16 (link-local)", "spec.subnet"},
		"subnet 224.0.1.0/24":                       {fields{"subnet": "224.0.1.0/24"}, ": 224.0.1.0/24 has addresses that no pod can have: 224.0.0.0/4 (multicast)", "spec.subnet"},
		"subnet 240.0.0.0/24":                       {fields{"subnet": "240.0.0.0/24"}, ": 240.0.0.0/24 has addresses that no pod can have: 240.0.0.0/4 (class E)", "spec.subnet"},
		"subnet 0.0.0.0/24":                         {fields{"subnet": "0.0.0.0/24"}, ": 0.0.0.0/24 has addresses that no pod can have: 0.0.0.0/8 (this network)", "spec.subnet"},
		"subnet 160.0.0.0/3":                        {fields{"subnet": "160.0.0.0/3"}, ": 160.0.0.0/3 has addresses that no pod can have: 169.254.0.0/16 (link-local)", "spec.subnet"},
		"subnet ::/64":                              {fields{"subnet": "::/64"}, ": ::/64 has addresses that no pod can have: ::/127 (unspecified and loopback)", "spec.subnet"},
		"subnet fe80::/64":                          {fields{"subnet": "fe80::/64"}, ": fe80::/64 has addresses that no pod can have: fe80::/10 (link-local)", "spec.subnet"},
		"subnet ff02::/64":                          {fields{"subnet": "ff02::/64"}, ": ff02::/64 has addresses that no pod can have: ff00::/8 (multicast)", "spec.subnet"},
		"subnet of IPv4-mapped addresses":           {fields{"subnet": "::ffff:10.1.0.0/120"}, ": ::ffff:10.1.0.0/120 is not a CIDR", "spec.subnet"},
		"vlan out of range":                         {with("vlan", int64(4095)), "spec.vlan", ""},
		"negative vlan":                             {with("vlan", int64(-1)), "spec.vlan", ""},
		"network in capitals":                       {with("network", "Lab"), "network must be lower case letters", ""},
		"network starts with a digit":               {with("network", "1lab"), "network must be lower case letters", ""},
		"network ends with a dash, as no lease may": {with("network", "lab-"), "network must be lower case letters", ""},
		"network has a dot":                         {with("network", "a.b"), "network must be lower case letters", ""},
		"network too long":                          {with("network", "abcdefghijklmnopqrstuvwxyzabcdef"), "spec.network: Too long", ""},
		"parent is a path":                          {with("parents", list("eth0/1")), ": eth0/1 is not the name of an interface", "spec.parents[0]"},
		"parent with a blank":                       {with("parents", list("eth 0")), ": eth 0 is not the name of an interface", "spec.parents[0]"},
		"parent too long":                           {with("parents", list(strings.Repeat("a", 128))), "spec.parents[0]: Too long", ""},
		"the same parent twice":                     {with("parents", list("eth0", "eth0")), "spec.parents[1]: Duplicate value", ""},
		"route dst is no CIDR":                      {route(map[string]any{"dst": "10.0.0.1"}), ": 10.0.0.1 is not a CIDR", "spec.routes[0].dst"},
		"route dst has host bits set":               {route(map[string]any{"dst": "10.0.0.1/8"}), ": 10.0.0.1/8 has host bits set", "spec.routes[0].dst"},
		"route dst of the other IP version":         {route(map[string]any{"dst": "fd00::/64"}), "routes: dst must be of the IP version of subnet", ""},
		"route gw is no address":                    {route(map[string]any{"dst": "10.0.0.0/8", "gw": "x"}), "gw x is not an IP address", ""},
		"route gw of the other IP version":          {route(map[string]any{"dst": "10.0.0.0/8", "gw": "fd00::1"}), "gw must be of the IP version of dst", ""},
		"two routes with one dst":                   {with("routes", []any{map[string]any{"dst": "10.0.0.0/8"}, map[string]any{"dst": "10.0.0.0/8"}}), "spec.routes[1]: Duplicate value", ""},
		"multusName without a namespace":            {with("multusName", list("macvlan")), "multusName: macvlan is not of the form namespace/name", ""},
		"negative warm":                             {with("warm", int64(-1)), "spec.warm", ""},
		"an unknown source guard":                   {with("sourceGuard", "On"), `spec.sourceGuard: Unsupported value: "On"`, ""},
		"an unknown reaction to routers":            {with("routerAdvertisements", "Off"), `spec.routerAdvertisements: Unsupported value: "Off"`, ""},
		"an allowed CIDR with host bits":            {allow("cidrs", "10.1.0.1/24"), ": 10.1.0.1/24 has host bits set", "spec.sourceGuardAllow.cidrs[0]"},
		"an allowed multicast MAC":                  {allow("macs", "01:00:5e:00:00:01"), ": macs: 01:00:5e:00:00:01 is not a unicast MAC address", "spec.sourceGuardAllow.macs[0]"},
		"an allowed MAC with dashes":                {allow("macs", "02-00-00-00-00-0a"), ": macs: 02-00-00-00-00-0a is not a unicast MAC address", "spec.sourceGuardAllow.macs[0]"},
		"an unknown role":                           {allow("roles", "Switch"), `spec.sourceGuardAllow.roles[0]: Unsupported value: "Switch"`, ""},
		"macPolicy of an unknown type":              {with("macPolicy", map[string]any{"type": "Random", "prefix": "0a:58"}), `spec.macPolicy.type: Unsupported value: "Random"`, ""},
		"macPolicy without a prefix":                {with("macPolicy", map[string]any{"type": "FromIP"}), "spec.macPolicy.prefix: Required value", ""},
		"a prefix of one octet":                     {with("macPolicy", macs("0a")), ": prefix 0a is not two octets", "spec.macPolicy.prefix"},
		"a prefix of multicast MACs":                {with("macPolicy", macs("01:00")), ": prefix 01:00 is that of multicast MACs", "spec.macPolicy.prefix"},
		"a prefix of a vendor":                      {with("macPolicy", macs("00:50")), ": prefix 00:50 is not locally administered", "spec.macPolicy.prefix"},
		"an unknown mode":                           {detection("mode", "Loose"), `spec.conflictDetection.mode: Unsupported value: "Loose"`, ""},
		"two probes":                                {detection("probes", int64(2)), "spec.conflictDetection.probes", ""},
		"an interval without a unit":                {detection("interval", "50"), ": 50 is not a duration", "spec.conflictDetection.interval"},
		"an interval that Go cannot read":           {detection("interval", "1 day"), ": 1 day is not a duration", "spec.conflictDetection.interval"},
		"a negative interval":                       {detection("interval", "-1s"), ": -1s is not a duration", "spec.conflictDetection.interval"},
		"an interval of nothing":                    {detection("interval", "0s"), ": 0s is not between 10ms and 2s", "spec.conflictDetection.interval"},
		"an interval without end":                   {detection("interval", "1h"), ": 1h is not between 10ms and 2s", "spec.conflictDetection.interval"},
		"ignoreMACs is no MAC":                      {detection("ignoreMACs", list("02-00-00-00-00-01")), "ignoreMACs: 02-00-00-00-00-01 is not a MAC address", ""},
		"extraGrace is no duration":                 {with("reclaim", map[string]any{"extraGrace": "5"}), ": 5 is not a duration", "spec.reclaim.extraGrace"},
		"extraGrace of years":                       {with("reclaim", map[string]any{"extraGrace": "8760h"}), ": 8760h is not between 0s and 24h", "spec.reclaim.extraGrace"},
		"cooldown is no duration":                   {with("reclaim", map[string]any{"cooldown": "soon"}), ": soon is not a duration", "spec.reclaim.cooldown"},
		"cooldown of years":                         {with("reclaim", map[string]any{"cooldown": "8760h"}), ": 8760h is not between 0s and 24h", "spec.reclaim.cooldown"},
		"an unknown statefulSet":                    {with("statefulSet", "Always"), `spec.statefulSet: Unsupported value: "Always"`, ""},
		"routeCheck is a word":                      {with("routeCheck", "yes"), "spec.routeCheck", ""},
		"gatewayCheck is a word":                    {with("gatewayCheck", "yes"), "spec.gatewayCheck", ""},
		"statefulSet is a word without quotes":      {with("statefulSet", false), "spec.statefulSet", ""},
		"retention.max is no duration":              {with("retention", map[string]any{"max": "48"}), ": 48 is not a duration", "spec.retention.max"},
		"maxPerNamespace is 0":                      {with("maxPerNamespace", int64(0)), "should be greater than or equal to 1", "spec.maxPerNamespace"},
		"retention.max of a second":                 {with("retention", map[string]any{"max": "1s"}), ": 1s is not between 1m and 87600h", "spec.retention.max"},
	} {
		t.Run(name, func(t *testing.T) {
			err := e.admin.Create(t.Context(), record("IPPool", "pool", c.spec), client.DryRunAll)
			e.refused(t, err, c.field)
			e.refused(t, err, c.want)
		})
	}
}

// testAddressesRefused: ips and excludeIPs of pools follow the same rules, and ips of reservations too, which
// have no subnet.
func (e *env) testAddressesRefused(t *testing.T) {
	for name, c := range map[string]struct {
		subnet  string
		entries []any
		want    string // beside the name of the field
	}{
		"no address":                        {"10.1.0.0/24", list("ten"), ": ten is neither an address nor a CIDR nor a range"},
		"a leading zero":                    {"10.1.0.0/24", list("10.1.0.09"), ": 10.1.0.09 is neither"},
		"a range of three":                  {"10.1.0.0/24", list("10.1.0.1-10.1.0.2-10.1.0.3"), " is neither an address nor a CIDR nor a range"},
		"half a range":                      {"10.1.0.0/24", list("10.1.0.1-"), ": 10.1.0.1- is neither"},
		"a range of CIDRs":                  {"10.1.0.0/24", list("10.1.0.0/25-10.1.0.128/25"), " is neither an address nor a CIDR nor a range"},
		"a CIDR with host bits":             {"10.1.0.0/24", list("10.1.0.129/25"), ": 10.1.0.129/25 has host bits set"},
		"a range of both IP versions":       {"10.1.0.0/24", list("10.1.0.1-fd00::1"), ": the range 10.1.0.1-fd00::1 mixes IPv4 and IPv6"},
		"IPv6 in an IPv4 pool":              {"10.1.0.0/24", list("10.1.0.1", "fd00::1"), ": fd00::1 lies outside subnet 10.1.0.0/24"},
		"IPv4 in an IPv6 pool":              {"fd00::/64", list("10.1.0.1"), ": 10.1.0.1 lies outside subnet fd00::/64"},
		"an address outside":                {"10.1.0.0/24", list("10.1.0.1", "10.1.1.1"), ": 10.1.1.1 lies outside subnet 10.1.0.0/24"},
		"a range that ends outside":         {"10.1.0.0/24", list("10.1.0.1-10.1.1.1"), ": 10.1.0.1-10.1.1.1 lies outside subnet 10.1.0.0/24"},
		"a range that starts outside":       {"10.1.0.0/24", list("10.0.0.1-10.1.0.1"), ": 10.0.0.1-10.1.0.1 lies outside subnet 10.1.0.0/24"},
		"a CIDR wider than the subnet":      {"10.1.0.0/24", list("10.1.0.0/23"), ": 10.1.0.0/23 lies outside subnet 10.1.0.0/24"},
		"an IPv6 range that ends outside":   {"fd00::/64", list("fd00::1-fd00:0:0:1::1"), " lies outside subnet fd00::/64"},
		"one twice":                         {"10.1.0.0/24", list("10.1.0.1", "10.1.0.1"), "[1]: Duplicate value"},
		"longer than an IPv6 range can be":  {"fd00::/64", list("fd00:0000:0000:0000:0000:0000:0000:0001-fd00:0000:0000:0000:0000:0000:0000:0002--------------------"), "[0]: Too long"},
		"an empty entry":                    {"10.1.0.0/24", list(""), "[0]"},
		"more than 4096":                    {"10.0.0.0/8", many(4097), ": Too many"},
		"one of 4096 is no address":         {"10.0.0.0/8", append(many(4095), "10.0.16.256"), ": 10.0.16.256 is neither"},
		"one of 4096 lies outside":          {"10.0.0.0/8", append(many(4095), "11.0.0.1"), ": 11.0.0.1 lies outside subnet 10.0.0.0/8"},
		"one of 4096 ranges lies outside":   {"fd00:1::/64", append(widest(4095), "fd00:1::1-fd00:1:0:1::1"), ": fd00:1::1-fd00:1:0:1::1 lies outside subnet fd00:1::/64"},
		"an IPv4 address in IPv6's clothes": {"10.1.0.0/24", list("::ffff:10.1.0.1"), ": ::ffff:10.1.0.1 is neither"},
	} {
		for field, o := range map[string]client.Object{
			"ips":        record("IPPool", "pool", fields{"subnet": c.subnet, "ips": c.entries}),
			"excludeIPs": record("IPPool", "pool", fields{"subnet": c.subnet, "excludeIPs": c.entries}),
			"reserved":   record("ReservedIP", "reserved", fields{"ips": c.entries}),
		} {
			if field == "reserved" && strings.Contains(c.want, "outside subnet") {
				continue
			}
			t.Run(field+": "+name, func(t *testing.T) {
				err := e.admin.Create(t.Context(), o, client.DryRunAll)
				e.refused(t, err, "spec."+strings.Replace(field, "reserved", "ips", 1))
				e.refused(t, err, c.want)
			})
		}
	}
}

func (e *env) testPoolChanges(t *testing.T) {
	for name, c := range map[string]struct {
		before fields
		change func(*v1alpha1.IPPoolSpec)
		want   string
	}{
		"subnet is immutable":        {fields{"subnet": "10.1.0.0/24"}, func(s *v1alpha1.IPPoolSpec) { s.Subnet = "10.1.0.0/25" }, "subnet is immutable"},
		"network is immutable":       {fields{"subnet": "10.1.0.0/24", "network": "a"}, func(s *v1alpha1.IPPoolSpec) { s.Network = "b" }, "network is immutable"},
		"network cannot be added":    {fields{"subnet": "10.1.0.0/24"}, func(s *v1alpha1.IPPoolSpec) { s.Network = "b" }, "network is immutable"},
		"network cannot be removed":  {fields{"subnet": "10.1.0.0/24", "network": "a"}, func(s *v1alpha1.IPPoolSpec) { s.Network = "" }, "network is immutable"},
		"addresses may be changed":   {fields{"subnet": "10.1.0.0/24"}, func(s *v1alpha1.IPPoolSpec) { s.IPs = []string{"10.1.0.4"} }, ""},
		"bad addresses do not creep": {fields{"subnet": "10.1.0.0/24"}, func(s *v1alpha1.IPPoolSpec) { s.IPs = []string{"10.2.0.4"} }, "ips: 10.2.0.4 lies outside subnet"},
	} {
		t.Run(name, func(t *testing.T) {
			e.create(t, record("IPPool", "changing", c.before))
			pool := &v1alpha1.IPPool{}
			check.OK(t, e.admin.Get(t.Context(), client.ObjectKey{Name: "changing"}, pool))
			c.change(&pool.Spec)
			e.expect(t, e.admin.Update(t.Context(), pool), c.want)
		})
	}
}

// testNodeDown: what the API server accepts is what the controller reads.
func (e *env) testNodeDown(t *testing.T) {
	for text, accepted := range map[v1alpha1.NodeDownPolicy]bool{
		"": true, "Never": true, "AfterTerminating": true, "After 2m": true, "After 1h30m": true, "After 0s": true,
		"never": false, "Now": false, "After": false, "After 5": false, "After -1s": false, "After 2d": false, "After  2m": false, "2m": false,
	} {
		pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: v1alpha1.IPPoolSpec{
			Subnet: "10.1.0.0/24", Reclaim: &v1alpha1.Reclaim{NodeDown: text},
		}}
		want := ""
		if !accepted {
			want = "nodeDown " + string(text) + " is none of Never, AfterTerminating and After with a duration"
		}
		e.expect(t, e.admin.Create(t.Context(), pool, client.DryRunAll), want)
		_, err := reclaim.ParseNodeDown(text)
		check.That(t, text == "" || (err == nil) == accepted, "%q: the controller says %v", text, err)
	}
}

func (e *env) testPoolDefaults(t *testing.T) {
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "defaults"}, Spec: v1alpha1.IPPoolSpec{Subnet: "10.1.0.0/24"}}
	check.OK(t, e.admin.Create(t.Context(), pool, client.DryRunAll))
	detection, reclaim := pool.Spec.ConflictDetection, pool.Spec.Reclaim
	if detection == nil || reclaim == nil || detection.Probes == nil || detection.Interval == nil ||
		reclaim.Cooldown == nil {
		t.Fatalf("defaults are missing: %+v", pool.Spec)
	}
	if reclaim.Terminating != nil || reclaim.ExtraGrace != nil || reclaim.NodeDown != "" {
		t.Errorf("reclaim is %+v: a default here would hide the one of the chart", reclaim)
	}
	got := fmt.Sprintln(detection.Mode, *detection.Probes, detection.Interval.Duration, reclaim.Cooldown.Duration)
	check.Equal(t, got, fmt.Sprintln(v1alpha1.ModeEnforce, 3, "50ms", "30s"), "defaults are")
	if pool.Spec.Warm != nil {
		t.Errorf("warm is %d by default: the controller chooses the stock of a pool without it", *pool.Spec.Warm)
	}
	if r := pool.Spec.Retention; r == nil || r.Max == nil || r.Max.Duration != v1alpha1.DefaultRetention {
		t.Errorf("retention is %+v by default: a name keeps its address for ever", r)
	}
}

func list(entries ...string) []any {
	var l []any
	for _, entry := range entries {
		l = append(l, entry)
	}
	return l
}

// many returns n different addresses.
func many(n int) []any {
	var l []any
	for i := range n {
		l = append(l, fmt.Sprintf("10.0.%d.%d", i/256, i%256))
	}
	return l
}

// widest returns n different IPv6 ranges in the longest form.
func widest(n int) []any {
	var l []any
	for i := range n {
		a := fmt.Sprintf("fd00:0001:0000:0000:0000:0000:0000:%04x", i)
		l = append(l, a+"-"+a)
	}
	return l
}

// widestCIDRs returns n different IPv6 CIDRs in the longest form.
func widestCIDRs(n int) []any {
	var l []any
	for i := range n {
		l = append(l, fmt.Sprintf("fd00:0001:0000:0000:0000:0000:%04x:0000/112", i))
	}
	return l
}

// testColumns reads what `kubectl get` prints.
func (e *env) testColumns(t *testing.T) {
	e.create(t, bound("", "10.1.0.1", forced))
	e.create(t, record("IPPool", "blue", fields{"subnet": "10.1.0.0/24", "gateway": "10.1.0.1"}))
	e.create(t, record("ReservedIP", "routers", fields{"ips": list("10.1.0.1", "10.1.0.9")}))
	e.create(t, record("IPSubnet", "floor", fields{"subnet": "10.2.0.0/24"}))
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	check.OK(t, e.admin.Get(t.Context(), objectKey("blue"), pool))
	pool.Status = v1alpha1.IPPoolStatus{Total: 253, Used: 7, Quarantined: 1, Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Valid", LastTransitionTime: metav1.Now()},
	}}
	check.OK(t, e.admin.Status().Update(t.Context(), pool))
	for resource, want := range map[string][2]string{
		"ipleases":    {"Name Address State Pool Node Namespace Pod Reason Age", "10.1.0.1 10.1.0.1 Bound pool n1 default web-0 <nil>"},
		"ippools":     {"Name Subnet Total Used Quarantined Ready Reason Age", "blue 10.1.0.0/24 253 7 1 True Valid"},
		"ipsubnets":   {"Name Subnet Total Allocated Pools Ready Reason Age", "floor 10.2.0.0/24 <nil> <nil> <nil> <nil> <nil>"},
		"reservedips": {"Name IPs For In use Ready Age", `routers ["10.1.0.1","10.1.0.9"] <nil> <nil> <nil>`},
	} {
		table := e.table(t, resource)
		var names, cells []string
		for _, column := range table.ColumnDefinitions {
			if column.Priority == 0 {
				names = append(names, column.Name)
			}
		}
		check.Equal(t, strings.Join(names, " "), want[0], "%s: columns", resource)
		row := slices.IndexFunc(table.Rows, func(r metav1.TableRow) bool {
			return fmt.Sprint(r.Cells[0]) == strings.Fields(want[1])[0]
		})
		check.Must(t, row >= 0, "%s: no row of %q", resource, want[1])
		for _, cell := range table.Rows[row].Cells[:len(names)-1] { // without the age
			cells = append(cells, fmt.Sprint(cell))
		}
		check.Equal(t, strings.Join(cells, " "), want[1], "%s: row", resource)
	}
}

func (e *env) table(t *testing.T, resource string) *metav1.Table {
	t.Helper()
	clients := check.Value(kubernetes.NewForConfig(e.server.Admin()))(t)
	data := check.Value(clients.RESTClient().Get().AbsPath("/apis", v1alpha1.GroupVersion().Group, v1alpha1.GroupVersion().Version, resource).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context()))(t)
	table := &metav1.Table{}
	check.OK(t, json.Unmarshal(data, table))
	return table
}

// writeLimit is how much CPU time the API server may take to validate and store the largest pool. Its
// clients wait for 30 s or more, and a busy machine may have a fifth of a CPU for it.
const writeLimit = 6 * time.Second

// testLargePool writes a pool with as many entries as the API server accepts. An edit and a write of the
// status validate all entries again.
func (e *env) testLargePool(t *testing.T) {
	large := record("IPPool", "large", fields{"subnet": "10.0.0.0/8", "ips": many(4096), "excludeIPs": many(4096)})
	pool := &v1alpha1.IPPool{}
	for _, step := range []struct {
		what  string
		write func() error
	}{
		{"create", func() error { return e.admin.Create(t.Context(), large) }},
		{"edit", func() error {
			if err := e.admin.Get(t.Context(), client.ObjectKey{Name: "large"}, pool); err != nil {
				return err
			}
			pool.Spec.IPs = append(pool.Spec.IPs[1:], "10.0.255.1")
			return e.admin.Update(t.Context(), pool)
		}},
		{"publish", func() error {
			pool.Status.Total = 1
			return e.controller.Status().Update(t.Context(), pool)
		}},
	} {
		before := check.Value(e.server.CPU())(t)
		err := step.write()
		check.Must(t, err == nil, "%s a pool of 8192 entries: %v", step.what, err)
		took := check.Value(e.server.CPU())(t) - before
		t.Logf("%s a pool of 8192 entries: %s of CPU", step.what, took)
		check.That(t, took <= writeLimit, "%s took %s of CPU, want at most %s", step.what, took, writeLimit)
	}
	check.Is(t, e.admin.Delete(t.Context(), large), nil, "got")
}
