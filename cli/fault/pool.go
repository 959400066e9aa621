// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
	"github.com/fenceline/fenceline/internal/inventory"
	"github.com/fenceline/fenceline/internal/poolset"
)

func (c *Cluster) conditions(add found) {
	if len(c.Pools) == 0 && !c.LacksPools {
		add("cluster", "it has no pool, so no pod gets an address", "make one, as docs/pools.md says")
	}
	for i := range c.Pools {
		for _, is := range c.Pools[i].Status.Conditions {
			if !condition.IsGood(is) {
				add("pool "+c.Pools[i].Name, fmt.Sprintf("%s is %s (%s): %s", is.Type, is.Status, is.Reason, is.Message), "docs/pools.md explains the condition")
			}
		}
	}
}

// overlaps finds pools that hand out addresses of nodes, Services or other networks of pods.
func (c *Cluster) overlaps(add found) {
	ranges := map[netip.Prefix]string{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		for _, cidr := range n.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(cidr); err == nil {
				ranges[p] = "the pod range of node " + n.Name
			}
		}
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil {
				ranges[netip.PrefixFrom(addr, addr.BitLen())] = "the address of node " + n.Name
			}
		}
	}
	for _, p := range c.Services {
		ranges[p] = "the range of Services"
	}
	for i := range c.Pools {
		set, err := poolset.Addresses(&c.Pools[i])
		if err != nil {
			continue // the condition Ready says so
		}
		for _, p := range slices.SortedFunc(maps.Keys(ranges), netip.Prefix.Compare) {
			if other, err := poolset.Parse([]string{p.String()}); err == nil && set.Overlaps(other) {
				add("pool "+c.Pools[i].Name, fmt.Sprintf("it hands out addresses of %s, %s", p, ranges[p]), "exclude them by spec.excludeIPs or a ReservedIP")
			}
		}
	}
}

func (c *Cluster) waits(add found) {
	for i := range c.Leases {
		l := &c.Leases[i]
		waited := c.Now.Sub(l.Spec.Since.Time)
		if l.Spec.State == v1alpha1.StateQuarantined && waited > longWait {
			add("address "+l.Spec.Address, fmt.Sprintf("it is Quarantined (%s) for %s: %s", l.Spec.Reason, duration.HumanDuration(waited), WhyQuarantined(l)),
				"kubectl fenceline explain "+l.Name)
		} else if l.Spec.State != v1alpha1.StateQuarantined && l.Spec.Conflict != nil {
			add("address "+l.Spec.Address, Disputed(l), "find that host by its MAC in the tables of the switch, and give it another address")
		}
	}
}

// WhyQuarantined says what a Quarantined lease waits for.
func WhyQuarantined(l *v1alpha1.IPLease) string {
	switch x := l.Spec.Conflict; {
	case l.Spec.Message != "":
		return l.Spec.Message
	case x != nil:
		return "MAC " + x.MAC + " uses it"
	}
	return "node " + cmp.Or(l.Spec.NodeName, "unknown") + " verifies"
}

// Disputed names the other host that uses an address beside its holder.
func Disputed(l *v1alpha1.IPLease) string {
	return strings.TrimSpace(fmt.Sprintf("MAC %s uses it too, beside its holder %s", l.Spec.Conflict.MAC, inventory.PodOf(&l.Spec)))
}
