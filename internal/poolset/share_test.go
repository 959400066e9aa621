// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// claim returns a pool of 10.0.0.0/24. age 0 is the oldest.
func claim(name string, age int, ips ...string) *poolOf {
	p := v4(name).ips(ips...)
	p.CreationTimestamp = metav1.NewTime(time.Date(2030, 1, 1, 12, 0, age, 0, time.UTC))
	p.Generation, p.Status.ObservedGeneration = 2, 2
	return p
}

// edited: the controller has not seen the present spec.
func (p *poolOf) edited() *poolOf { p.Generation++; return p }

func (p *poolOf) lacking(of string, ips ...string) *poolOf {
	p.Status.Withheld = append(p.Status.Withheld, v1alpha1.Withheld{Pool: of, IPs: ips})
	return p
}

func (p *poolOf) inNetwork(name string) *poolOf { p.Spec.Network = name; return p }

// TestOnePoolHandsOutACommonAddress: the text names each pool with the addresses that it hands out.
func TestOnePoolHandsOutACommonAddress(t *testing.T) {
	for _, row := range []struct {
		name  string
		pools []*poolOf
		want  string
		// agents is set where agents, which follow the status, hand out less for a moment.
		agents string
	}{
		{"pools that share nothing", []*poolOf{claim("a", 0, "10.0.0.1-10.0.0.9"), claim("b", 1, "10.0.0.10-10.0.0.19")},
			"a 10.0.0.1-10.0.0.9; b 10.0.0.10-10.0.0.19", ""},
		{"the older pool was extended over the younger one", []*poolOf{claim("a", 0, "10.0.0.1-10.0.0.19").edited(), claim("b", 1, "10.0.0.10-10.0.0.29")},
			"a 10.0.0.1-10.0.0.9; b 10.0.0.10-10.0.0.29", ""},
		{"the controller has seen the edit", []*poolOf{claim("a", 0, "10.0.0.1-10.0.0.19").lacking("b", "10.0.0.10-10.0.0.19"), claim("b", 1, "10.0.0.10-10.0.0.29")},
			"a 10.0.0.1-10.0.0.9; b 10.0.0.10-10.0.0.29", ""},
		{"then another field of the younger one was edited", []*poolOf{claim("a", 0, "10.0.0.1-10.0.0.19").lacking("b", "10.0.0.10-10.0.0.19"), claim("b", 1, "10.0.0.10-10.0.0.29").edited()},
			"a 10.0.0.1-10.0.0.9; b 10.0.0.10-10.0.0.29", ""},
		{"then another field of the older one was edited", []*poolOf{claim("a", 0, "10.0.0.1-10.0.0.19").lacking("b", "10.0.0.10-10.0.0.19").edited(), claim("b", 1, "10.0.0.10-10.0.0.29")},
			"a 10.0.0.1-10.0.0.9; b 10.0.0.10-10.0.0.29", ""},
		{"a new pool over an old one", []*poolOf{claim("a", 0, "10.0.0.1-10.0.0.19"), claim("b", 1, "10.0.0.10-10.0.0.29").edited()},
			"a 10.0.0.1-10.0.0.19; b 10.0.0.20-10.0.0.29", ""},
		{"both were edited while there was no controller: the older one", []*poolOf{claim("a", 0, "10.0.0.1-10.0.0.19").edited(), claim("b", 1, "10.0.0.10-10.0.0.29").edited()},
			"a 10.0.0.1-10.0.0.19; b 10.0.0.20-10.0.0.29", ""},
		{"of the same age, the name decides", []*poolOf{claim("b", 0, "10.0.0.1").edited(), claim("a", 0, "10.0.0.1").edited()}, "b ; a 10.0.0.1", ""},
		{"restored without status", []*poolOf{claim("a", 5, "10.0.0.1-10.0.0.19").edited(), claim("b", 1, "10.0.0.10-10.0.0.29").edited()},
			"a 10.0.0.1-10.0.0.9; b 10.0.0.10-10.0.0.29", ""},
		{"restored with status", []*poolOf{claim("a", 5, "10.0.0.1-10.0.0.19"), claim("b", 1, "10.0.0.10-10.0.0.29").lacking("a", "10.0.0.10-10.0.0.19")},
			"a 10.0.0.1-10.0.0.19; b 10.0.0.20-10.0.0.29", ""},
		{"the other pool is deleted: agents wait for the status", []*poolOf{claim("a", 0, "10.0.0.1-10.0.0.19").lacking("b", "10.0.0.10-10.0.0.19"), claim("b", 1, "10.0.0.10-10.0.0.29").deleting()},
			"a 10.0.0.1-10.0.0.19; b 10.0.0.10-10.0.0.29", "a 10.0.0.1-10.0.0.9; b 10.0.0.10-10.0.0.29"},
		{"the other pool has shrunk", []*poolOf{claim("a", 0, "10.0.0.1-10.0.0.19").lacking("b", "10.0.0.10-10.0.0.19"), claim("b", 1, "10.0.0.20-10.0.0.29").edited()},
			"a 10.0.0.1-10.0.0.19; b 10.0.0.20-10.0.0.29", "a 10.0.0.1-10.0.0.9; b 10.0.0.20-10.0.0.29"},
		{"three pools, the second and the third came later", []*poolOf{claim("a", 0, "10.0.0.1-10.0.0.9").edited(), claim("b", 1, "10.0.0.5-10.0.0.9").edited(), claim("c", 2, "10.0.0.9-10.0.0.12")},
			"a 10.0.0.1-10.0.0.8; b ; c 10.0.0.9-10.0.0.12", ""},
		{"three pools, the first is deleted: the older one of the others", []*poolOf{claim("a", 0, "10.0.0.9").deleting(), claim("b", 1, "10.0.0.9").lacking("a", "10.0.0.9"), claim("c", 2, "10.0.0.9").lacking("a", "10.0.0.9")},
			"a 10.0.0.9; b 10.0.0.9; c ", "a 10.0.0.9; b ; c "},
		{"an unreadable pool keeps its addresses", []*poolOf{claim("a", 0, "10.0.0.1-10.0.0.19").lacking("b", "10.0.0.10-10.0.0.19"), claim("b", 1, "10.0.0.29-10.0.0.10").edited()},
			"a 10.0.0.1-10.0.0.9; b ", ""},
		{"a disabled pool keeps its addresses", []*poolOf{claim("a", 0, "10.0.0.1-10.0.0.19").edited(), claim("b", 1, "10.0.0.10-10.0.0.29").disabled(true)},
			"a 10.0.0.1-10.0.0.9; b 10.0.0.10-10.0.0.29", ""},
		{"pools of different networks", []*poolOf{claim("a", 0, "10.0.0.1"), claim("b", 1, "10.0.0.1").inNetwork("lab")}, "a 10.0.0.1; b 10.0.0.1", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			var pools []v1alpha1.IPPool
			for _, p := range row.pools {
				pools = append(pools, *p.object())
			}
			var decided, followed []string
			for i := range pools {
				all, _ := Addresses(&pools[i])
				own := all.Minus(Withheld(Record(&pools[i], Shares(&pools[i], all, pools))))
				decided = append(decided, pools[i].Name+" "+strings.Join(own.Entries(), " "))
				followed = append(followed, pools[i].Name+" "+strings.Join(Own(&pools[i], all, pools).Entries(), " "))
			}
			check.Equal(t, strings.Join(decided, "; "), row.want, "the controller decides")
			if row.agents == "" {
				row.agents = row.want
			}
			check.Equal(t, strings.Join(followed, "; "), row.agents, "agents follow")
		})
	}
}

// TestTheRecordDoesNotChangeByItself publishes the pools one after another, in each order, until nothing
// changes. The first result must stay.
func TestTheRecordDoesNotChangeByItself(t *testing.T) {
	made := func() []v1alpha1.IPPool {
		return []v1alpha1.IPPool{
			*claim("a", 0, "10.0.0.1-10.0.0.30").edited().object(), *claim("b", 1, "10.0.0.10-10.0.0.39").object(), *claim("c", 2, "10.0.0.20-10.0.0.50").edited().object(),
		}
	}
	const want = "map[a:10.0.0.1-10.0.0.9 b:10.0.0.10-10.0.0.39 c:10.0.0.40-10.0.0.50]"
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		pools := made()
		for range 3 {
			got := map[string]string{}
			for _, i := range order {
				p := &pools[i]
				all, _ := Addresses(p)
				p.Status.Withheld, p.Status.ObservedGeneration = Record(p, Shares(p, all, pools)), p.Generation
				got[p.Name] = strings.Join(Own(p, all, pools).Entries(), " ")
			}
			check.That(t, fmt.Sprint(got) == want, "in the order %v: %v, want %s", order, got, want)
		}
	}
}

func TestARecordIsBounded(t *testing.T) {
	var ips []string
	for i := range 5000 {
		ips = append(ips, fmt.Sprintf("10.0.%d.%d", i/100, 2*(i%100)+1))
	}
	a, b := pool("a", "10.0.0.0/16"), pool("b", "10.0.0.0/16").ips(ips...).object()
	all, _ := Addresses(a.edited().object())
	record := Record(a.object(), Shares(a.object(), all, []v1alpha1.IPPool{*b}))
	check.That(t, len(record) == 1 && fmt.Sprint(record[0].IPs) == "[10.0.0.0/16]", "%d records", len(record))
}

func TestWhyAPoolHandsOutNothing(t *testing.T) {
	for name, c := range map[string]struct {
		pool     *poolOf
		reserved Set
		want     Reason
	}{
		"it hands out addresses":            {v4("a").disabled(false), setOf(t, "10.0.0.9"), ""},
		"it is deleted, and disabled too":   {v4("a").deleting().disabled(true), Set{}, Deleting},
		"it is disabled, and invalid too":   {v4("a").disabled(true).ips("x"), Set{}, Disabled},
		"it is invalid":                     {v4("a").ips("x"), Set{}, Invalid},
		"a route is invalid":                {v4("a").routed("10.8.0.0"), Set{}, Invalid},
		"all is excluded, and reserved too": {v4("a").without("10.0.0.0/24"), setOf(t, "10.0.0.0/24"), AllExcluded},
		"what is left is reserved":          {v4("a").without("10.0.0.0/25"), setOf(t, "10.0.0.128/25"), AllReserved},
	} {
		t.Run(name, func(t *testing.T) {
			all, _ := Addresses(c.pool.object())
			_, problem := Validate(c.pool.object())
			check.Equal(t, Closed(c.pool.object(), problem, all, all, all.Minus(c.reserved)), c.want, "got")
		})
	}
}

func TestPartsOfASet(t *testing.T) {
	s := setOf(t, "10.0.0.2-10.0.0.4", "10.0.0.8", "fd00::1-fd00::ffff")
	for _, row := range []struct {
		rule string
		got  Set
		want []string
	}{
		{"the first of a span", s.First(2), []string{"10.0.0.2-10.0.0.3"}},
		{"the first over spans", s.First(5), []string{"10.0.0.2-10.0.0.4", "10.0.0.8", "fd00::1"}},
		{"none", s.First(0), []string{}},
		{"more than there are", setOf(t, "10.0.0.2").First(9), []string{"10.0.0.2"}},
		{"the last", setOf(t, "10.0.0.2-10.0.0.4", "10.0.0.8").Last(2), []string{"10.0.0.4", "10.0.0.8"}},
		{"the last of fewer", setOf(t, "10.0.0.2").Last(9), []string{"10.0.0.2"}},
		{"a union", Union(setOf(t, "10.0.0.2"), Set{}, setOf(t, "10.0.0.3", "10.0.0.9")), []string{"10.0.0.2-10.0.0.3", "10.0.0.9"}},
	} {
		check.List(t, row.got.Entries(), row.want, "%s:", row.rule)
		check.That(t, row.got.Equal(setOf(t, row.want...)), "%s: another set than that of its entries", row.rule)
	}
}

func TestGivers(t *testing.T) {
	made := func(name string, edits ...func(*v1alpha1.IPPool)) v1alpha1.IPPool {
		p := v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{
			Subnet: "10.6.0.0/24", IPs: []string{"10.6.0.10-10.6.0.20"},
		}}
		for _, edit := range edits {
			edit(&p)
		}
		return p
	}
	spec := func(edit func(*v1alpha1.IPPoolSpec)) func(*v1alpha1.IPPool) {
		return func(p *v1alpha1.IPPool) { edit(&p.Spec) }
	}
	deleting := func(p *v1alpha1.IPPool) { p.DeletionTimestamp = &metav1.Time{} }
	for _, row := range []struct {
		name     string
		pools    []v1alpha1.IPPool
		reserved []string
		want     []string
	}{
		{"a pool that has the address", []v1alpha1.IPPool{made("a")}, nil, []string{"a"}},
		{"a disabled pool may be enabled again", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.Disable = ptr.To(true) }))}, nil, []string{"a"}},
		{"a pool that is being deleted", []v1alpha1.IPPool{made("a", deleting)}, nil, nil},
		{"no pool at all", nil, nil, nil},
		{"ips without the address", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.IPs = []string{"10.6.0.10"} }))}, nil, nil},
		{"an excluded address", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.ExcludeIPs = []string{"10.6.0.14/31"} }))}, nil, nil},
		{"a gateway", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.Gateway = ptr.To("10.6.0.15") }))}, nil, nil},
		{"a reserved address", []v1alpha1.IPPool{made("a")}, []string{"10.6.0.15"}, nil},
		{"a reservation of another address", []v1alpha1.IPPool{made("a")}, []string{"10.6.0.16"}, []string{"a"}},
		{"one of two pools is being deleted", []v1alpha1.IPPool{made("a", deleting), made("b")}, nil, []string{"b"}},
		{"a pool of another network", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.Network = "lab" }))}, nil, nil},
		{"a pool of another subnet", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.Subnet, s.IPs = "10.7.0.0/24", nil }))}, nil, nil},
		{"an unreadable list may have the address", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.IPs = []string{"10.6.0.9-10.6.0.2"} }))}, nil, []string{"a"}},
		{"an unreadable subnet may have the address", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.Subnet = "?" }))}, nil, []string{"a"}},
		{"an unreadable list of another subnet", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.Subnet, s.IPs = "10.7.0.0/24", []string{"10.7.0.9-10.7.0.2"} }))}, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			reserved := check.Value(Parse(row.reserved))(t)
			check.List(t, Givers("", netip.MustParseAddr("10.6.0.15"), row.pools, reserved), row.want, "got")
		})
	}
}
