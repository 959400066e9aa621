// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/apis/poolset"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// TestAPoolHandsOutNoAddressOfAnotherPool: red was created before blue was extended over it.
func TestAPoolHandsOutNoAddressOfAnotherPool(t *testing.T) {
	red := v4("red").ips("10.0.0.5-10.0.0.9")
	for name, blue := range map[string]*poolOf{
		"the controller has seen the edit":      v4("blue").ips("10.0.0.1-10.0.0.9").withheld("red", "10.0.0.5-10.0.0.9"),
		"the controller has not seen the edit":  v4("blue").ips("10.0.0.1-10.0.0.9").editedSince(),
		"the controller has seen a later edit":  v4("blue").ips("10.0.0.1-10.0.0.9").withheld("red", "10.0.0.5-10.0.0.9").editedSince(),
		"the controller has published too much": v4("blue").ips("10.0.0.1-10.0.0.4").withheld("red", "10.0.0.0/28").editedSince(),
	} {
		t.Run(name, func(t *testing.T) {
			pools := objects(blue, red)
			got, err := ChoosePools(requestOf(inConfig([]string{"blue"}, nil)), pools, poolset.Set{})
			check.OK(t, err)
			if set := got.Families[0].Pools[0].Set.Entries(); strings.Join(set, " ") != "10.0.0.1-10.0.0.4" {
				t.Errorf("blue hands out %v", set)
			}
			if c, closed := OnNode(&pools[0], pools, "n1", nil, poolset.Set{}); closed != nil || c.Set.Contains(netip.MustParseAddr("10.0.0.5")) {
				t.Errorf("on the node it hands out %v (%+v)", c.Set.Entries(), closed)
			}
		})
	}
	none := v4("blue").ips("10.0.0.5").withheld("red", "10.0.0.5")
	_, err := ChoosePools(requestOf(inConfig([]string{"blue"}, nil)), objects(none, red), poolset.Set{})
	if err == nil || !strings.Contains(err.Error(), "pool blue: other pools hand out all its addresses") {
		t.Error(err)
	}
	// Without a controller, the older pool hands out the common address.
	older, younger := v4("z").ips("10.0.0.5").editedSince(), v4("a").ips("10.0.0.5").editedSince()
	younger.CreationTimestamp.Time = time.Unix(1, 0)
	pools := objects(younger, older)
	_, err = ChoosePools(requestOf(inConfig([]string{"a"}, nil)), pools, poolset.Set{})
	if err == nil || !strings.Contains(err.Error(), "pool a: other pools hand out all its addresses") {
		t.Error(err)
	}
	if got, err := ChoosePools(requestOf(inConfig([]string{"z"}, nil)), pools, poolset.Set{}); err != nil || names(got) != "v4: z" {
		t.Errorf("the older pool: %q, %v", names(got), err)
	}
	asked := requestOf(inConfig([]string{"blue"}, nil))
	asked.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.5")}
	_, err = ChoosePools(asked, objects(v4("blue").withheld("red", "10.0.0.5-10.0.0.9"), red), poolset.Set{})
	if err == nil || !strings.Contains(err.Error(), "another pool hands it out; the condition Overlapping of pool blue names that pool") {
		t.Error(err)
	}
}

func (p *poolOf) withheld(of string, ips ...string) *poolOf {
	p.Status.Withheld = []v1alpha1.Withheld{{Pool: of, IPs: ips}}
	return p
}

func (p *poolOf) editedSince() *poolOf { p.Generation++; return p }
