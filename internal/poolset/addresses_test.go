// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"errors"
	"math"
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestWhatAPoolMayHandOut(t *testing.T) {
	for name, c := range map[string]struct {
		pool *poolOf
		want Set
	}{
		"an empty ips means all hosts":                      {v4("a"), setOf(t, "10.0.0.1-10.0.0.254")},
		"ips as ranges, addresses and CIDRs":                {v4("a").ips("10.0.0.9", "10.0.0.20-10.0.0.21", "10.0.0.64/30"), setOf(t, "10.0.0.9", "10.0.0.20-10.0.0.21", "10.0.0.64/30")},
		"excluded addresses are not handed out":             {v4("a").ips("10.0.0.1-10.0.0.9").without("10.0.0.2", "10.0.0.8/31"), setOf(t, "10.0.0.1", "10.0.0.3-10.0.0.7")},
		"a link-local gateway takes none":                   {v6("a").ips("fd00::1-fd00::2").gateway("fe80::1"), setOf(t, "fd00::1", "fd00::2")},
		"the gateway is not handed out":                     {v4("a").ips("10.0.0.1-10.0.0.3").gateway("10.0.0.2"), setOf(t, "10.0.0.1", "10.0.0.3")},
		"a virtual address is not, and a router's sources":  {v4("a").ips("10.0.0.1-10.0.0.3").allowing("10.0.0.2/32", "10.0.1.7/32", "fd00::2/128", "10.0.0.0/30", "0.0.0.0/0"), setOf(t, "10.0.0.1", "10.0.0.3")},
		"network and broadcast are not, even where listed":  {v4("a").ips("10.0.0.0/24"), setOf(t, "10.0.0.1-10.0.0.254")},
		"the edges of a CIDR inside the subnet are hosts":   {v4("a").ips("10.0.0.64/26"), setOf(t, "10.0.0.64-10.0.0.127")},
		"a /30 has two hosts":                               {pool("a", "10.0.0.4/30"), setOf(t, "10.0.0.5-10.0.0.6")},
		"a /31 has two hosts and no broadcast (RFC 3021)":   {pool("a", "10.0.0.4/31"), setOf(t, "10.0.0.4-10.0.0.5")},
		"a /32 is one host":                                 {pool("a", "10.0.0.4/32"), setOf(t, "10.0.0.4")},
		"IPv6 leaves the subnet-router anycast address out": {pool("a", "fd00::/126"), setOf(t, "fd00::1-fd00::3")},
		"a /127 has two hosts (RFC 6164)":                   {pool("a", "fd00::/127"), setOf(t, "fd00::-fd00::1")},
		"everything may be excluded":                        {v4("a").ips("10.0.0.5").without("10.0.0.0/24"), Set{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := check.Value(Addresses(c.pool.object()))(t)
			check.That(t, got.Minus(c.want).Len() == 0 && c.want.Minus(got).Len() == 0, "got %v, want %v", got.spans, c.want.spans)
		})
	}
}

func TestALargeIPv6SubnetIsNotEnumerated(t *testing.T) {
	s, err := Addresses(pool("a", "fd00::/32").without("fd00::8000/113").gateway("fd00::1").object())
	check.Must(t, err == nil && s.Len() == math.MaxUint64, "%d addresses, %v", s.Len(), err)
	check.Equal(t, s.At(0).String(), "fd00::2", "the first address is")
	check.Equal(t, s.At(0x7ffe).String(), "fd00::1:0", "the first address after the excluded ones is")
}

func TestProblemsOfAPool(t *testing.T) {
	selector := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	bad := v4("a")
	bad.Spec.NodeAffinity, bad.Spec.NamespaceAffinity, bad.Spec.PodAffinity = selector, selector, selector

	for name, c := range map[string]struct {
		pool *poolOf
		want []string // the fields, in order
		text string   // of the first problem
	}{
		"a good pool":                        {v4("a").ipVersion(4), nil, ""},
		"a subnet that is no CIDR":           {pool("a", "10.0.0.0"), []string{"spec.subnet"}, `spec.subnet: "10.0.0.0" is not a CIDR`},
		"a subnet with host bits":            {pool("a", "10.0.0.1/24"), []string{"spec.subnet"}, "spec.subnet: CIDR 10.0.0.1/24 has host bits set, write 10.0.0.0/24"},
		"the other ipVersion":                {v4("a").ipVersion(6), []string{"spec.ipVersion"}, "spec.ipVersion: 6 does not fit the subnet 10.0.0.0/24"},
		"an unknown ipVersion":               {v6("a").ipVersion(5), []string{"spec.ipVersion"}, "spec.ipVersion: 5 does not fit the subnet fd00::/64"},
		"an IPv6 range backwards":            {v6("a").ips("fd00::1", "fd00::20-fd00::1f"), []string{"spec.ips[1]"}, "spec.ips[1]: range fd00::20-fd00::1f ends before it starts"},
		"an IPv4 range backwards":            {v4("a").ips("10.0.0.20-10.0.0.3"), []string{"spec.ips[0]"}, "spec.ips[0]: range 10.0.0.20-10.0.0.3 ends before it starts"},
		"the same in the third octet":        {pool("a", "10.0.0.0/8").without("10.0.10.1-10.0.9.2"), []string{"spec.excludeIPs[0]"}, "spec.excludeIPs[0]: range 10.0.10.1-10.0.9.2 ends before it starts"},
		"the same in the second octet":       {pool("a", "10.0.0.0/8").ips("10.10.0.1-10.9.9.2"), []string{"spec.ips[0]"}, "spec.ips[0]: range 10.10.0.1-10.9.9.2 ends before it starts"},
		"the same in the first octet":        {pool("a", "0.0.0.0/0").ips("10.1.0.1-9.1.9.2"), []string{"spec.ips[0]"}, "spec.ips[0]: range 10.1.0.1-9.1.9.2 ends before it starts"},
		"a range that leaves the subnet":     {v4("a").ips("10.0.0.250-10.0.1.1"), []string{"spec.ips[0]"}, "spec.ips[0]: 10.0.0.250-10.0.1.1 is not inside the subnet 10.0.0.0/24"},
		"an IPv6 address in an IPv4 pool":    {v4("a").without("fd00::1"), []string{"spec.excludeIPs[0]"}, "spec.excludeIPs[0]: fd00::1 is not inside the subnet 10.0.0.0/24"},
		"a gateway outside of the subnet":    {v4("a").gateway("10.0.1.1"), []string{"spec.gateway"}, "spec.gateway: 10.0.1.1 is not inside the subnet 10.0.0.0/24"},
		"a gateway that is no address":       {v4("a").gateway("router"), []string{"spec.gateway"}, `spec.gateway: "router" is not an IP address`},
		"every problem is told":              {v4("a").ips("x").without("y").gateway("z"), []string{"spec.ips[0]", "spec.excludeIPs[0]", "spec.gateway"}, ""},
		"selectors with an unknown operator": {bad, []string{"spec.nodeAffinity", "spec.namespaceAffinity", "spec.podAffinity"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Validate(c.pool.object())
			var got []string
			var texts []string
			for _, e := range flatten(err) {
				problem := (*SpecError)(nil)
				check.Must(t, errors.As(e, &problem), "%v is no SpecError", e)
				got, texts = append(got, problem.Field), append(texts, e.Error())
			}
			check.Must(t, len(got) == len(c.want), "problems %v, want fields %v", texts, c.want)
			for i := range got {
				check.Equal(t, got[i], c.want[i], "problem %d is of", i)
			}
			if c.text != "" && texts[0] != c.text {
				t.Errorf("got  %s\nwant %s", texts[0], c.text)
			}
		})
	}
}

// flatten returns the leaves of joined errors.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, flatten(e)...)
	}
	return all
}

func TestAddressesWithTheSameMAC(t *testing.T) {
	policy := &v1alpha1.MACPolicy{Type: v1alpha1.MACFromIP, Prefix: "0a:58"}
	pool := func(name, subnet string, change func(*v1alpha1.IPPoolSpec), ips ...string) v1alpha1.IPPool {
		p := v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Subnet: subnet, IPs: ips, MACPolicy: policy}}
		p.Name = name
		if change != nil {
			change(&p.Spec)
		}
		return p
	}
	vlan := int64(7)
	for name, row := range map[string]struct {
		pool   v1alpha1.IPPool
		addr   string
		others []v1alpha1.IPPool
		want   string
	}{
		"of a pool of one /96":                {pool("a", "fd00::/96", nil), "fd00::5", nil, ""},
		"of a pool that is a /64":             {pool("a", "fd00::/64", nil), "fd00::5", nil, "fd00::1:0:5"},
		"of a pool that is a /64, from above": {pool("a", "fd00::/64", nil), "fd00::7:0:5", nil, "fd00::5"},
		"of two ranges":                       {pool("a", "fd00::/64", nil, "fd00::5", "fd00::1:0:1-fd00::1:0:9"), "fd00::5", nil, "fd00::1:0:5"},
		"of two ranges that end differently":  {pool("a", "fd00::/64", nil, "fd00::5", "fd00::1:0:6-fd00::1:0:9"), "fd00::5", nil, ""},
		"of an IPv4 address":                  {pool("a", "10.0.0.0/24", nil), "10.0.0.5", []v1alpha1.IPPool{pool("b", "fd00::/64", nil)}, ""},
		"of another pool":                     {pool("a", "fd00::/96", nil), "fd00::5", []v1alpha1.IPPool{pool("b", "fd00:1::/96", nil)}, "fd00:1::5"},
		"of an IPv4 pool":                     {pool("a", "fd00::/96", nil), "fd00::a00:5", []v1alpha1.IPPool{pool("b", "10.0.0.0/24", nil)}, "10.0.0.5"},
		"of a pool of another VLAN": {pool("a", "fd00::/96", nil), "fd00::5",
			[]v1alpha1.IPPool{pool("b", "fd00:1::/96", func(s *v1alpha1.IPPoolSpec) { s.Vlan = &vlan })}, ""},
		"of a pool of another network": {pool("a", "fd00::/96", nil), "fd00::5",
			[]v1alpha1.IPPool{pool("b", "fd00:1::/96", func(s *v1alpha1.IPPoolSpec) { s.Network = "lab" })}, ""},
		"of a pool with another prefix": {pool("a", "fd00::/96", nil), "fd00::5", []v1alpha1.IPPool{pool("b", "fd00:1::/96", func(s *v1alpha1.IPPoolSpec) {
			s.MACPolicy = &v1alpha1.MACPolicy{Type: v1alpha1.MACFromIP, Prefix: "0a:59"}
		})}, ""},
		"of a pool without a policy": {pool("a", "fd00::/96", nil), "fd00::5",
			[]v1alpha1.IPPool{pool("b", "fd00:1::/96", func(s *v1alpha1.IPPoolSpec) { s.MACPolicy = nil })}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			other, _, ok := SameMAC(&row.pool, netip.MustParseAddr(row.addr), append(row.others, row.pool))
			check.That(t, ok == (row.want != "") && (!ok || other.String() == row.want), "%s, %t, want %q", other, ok, row.want)
		})
	}
}

func TestRoutesOfAPoolThatCannotBeUsed(t *testing.T) {
	for rule, c := range map[string]struct{ route, want string }{
		"a dst that is no CIDR":   {"10.8.0.0", `spec.routes[1]: dst: "10.8.0.0" is not a CIDR`},
		"a gw that is no address": {"10.8.0.0/16 router", `spec.routes[1]: gw: "router" is not an IP address`},
		"the other family":        {"fd08::/16 fd00::1", "spec.routes[1]: dst fd08::/16 is not of the family of the subnet 10.0.0.0/24"},
		"a gw out of reach":       {"10.8.0.0/16 10.1.0.2", "spec.routes[1]: gw 10.1.0.2 is not inside the subnet 10.0.0.0/24"},
	} {
		t.Run(rule, func(t *testing.T) {
			p := v4("a").routed("10.9.0.0/16 10.0.0.2", c.route)
			_, err := Validate(p.object())
			check.That(t, err != nil && err.Error() == c.want, "got %v, want %s", err, c.want)
		})
	}
}

func TestARouteOfAPoolMayGoThroughALinkLocalAddress(t *testing.T) {
	check.Value(Validate(v6("six").routed("fd08::/16 fe80::1").object()))(t)
}
