// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/internal/inventory"
)

// Questions returns the addresses for which the agent of a node asks the wire: the gateways of the pools
// that its pods have, and for each parent a pod of another node.
func (c *Cluster) Questions(node string) []diagnosis.Question {
	type on struct{ pool, parent string }
	here := map[on]bool{}
	for i := range c.Leases {
		if s := &c.Leases[i].Spec; s.NodeName == node && s.Parent != "" && (s.State == v1alpha1.StateBound || s.State == v1alpha1.StateWarm) {
			here[on{s.Pool, s.Parent}] = true
		}
	}
	var questions []diagnosis.Question
	add := func(addr netip.Addr, parent string) {
		q := diagnosis.Question{Address: addr, Parent: parent}
		if addr.IsValid() && !slices.Contains(questions, q) && len(questions) < diagnosis.MaxQuestions {
			questions = append(questions, q)
		}
	}
	for at := range here {
		for i := range c.Pools {
			if c.Pools[i].Name == at.pool {
				add(c.Pools[i].Gateway(), at.parent)
			}
		}
		for i := range c.Leases {
			if s := &c.Leases[i].Spec; s.Pool == at.pool && s.State == v1alpha1.StateBound && s.NodeName != node {
				add(s.Addr(), at.parent)
				break
			}
		}
	}
	return questions
}

// parents finds parents on which a fence or a probe proves nothing.
func (c *Cluster) parents(r Report, add found) {
	for _, p := range r.Parents {
		object := parentOf(r, p.Name)
		for _, text := range p.Hazards {
			what, do, _ := strings.Cut(text, "; ")
			add(object, what, do)
		}
		switch {
		case !p.Carrier:
			add(object, "it has no carrier", "look at the cable and the switch port")
		case !p.Observed:
			add(object, "the agent does not hear its frames", "look at the agent's log")
		case p.Mute:
			add(object, "no other host answers there, so addresses that this node verifies stay Quarantined", "look at the VLAN, and at port security of the switch")
		case p.Deaf && c.othersSpeak(r.Node, p.Name):
			add(object, "it hears no other agent, so silence there proves nothing", "look at the VLAN of the parent and of the switch port")
		}
	}
}

// misplaced finds pods that run on a parent to which a new pod would not come.
func (c *Cluster) misplaced(r Report, add found) {
	for _, m := range r.Misplaced {
		add(parentOf(r, m.Parent), strings.Join(m.Pods, ", ")+" run there, but "+m.Why, m.Do)
	}
}

// unknownNames finds names of interfaces that no node has. Nodes may have different ones.
func (c *Cluster) unknownNames(add found) {
	exists := map[diagnosis.Named]bool{}
	for _, r := range c.Reports {
		if r.Named == nil {
			return
		}
		for _, n := range r.Named {
			key := diagnosis.Named{Of: n.Of, Name: n.Name}
			exists[key] = exists[key] || n.Exists
		}
	}
	for _, n := range slices.SortedFunc(maps.Keys(exists), func(a, b diagnosis.Named) int { return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.Name, b.Name)) }) {
		if !exists[n] && len(c.Silent) == 0 {
			add(n.Of, "no node has the interface "+n.Name+", which it names", "correct the name: ip link shows the names, also alternative ones")
		}
	}
}

func parentOf(r Report, parent string) string {
	return fmt.Sprintf("parent %s of node %s", parent, r.Node)
}

// othersSpeak reports whether pods of other nodes have addresses on a parent of that name. Their claims
// should be heard. A new cluster has none.
func (c *Cluster) othersSpeak(node, parent string) bool {
	return slices.ContainsFunc(c.Leases, func(l v1alpha1.IPLease) bool {
		return l.Spec.State == v1alpha1.StateBound && l.Spec.NodeName != node && l.Spec.Parent == parent
	})
}

// sameMACs finds parents of two nodes with one MAC: a switch sends the frames of both to one of them.
func (c *Cluster) sameMACs(add found) {
	of := map[string][]string{}
	for _, r := range c.Reports {
		macs := map[string]bool{}
		for _, p := range r.Parents {
			// A VLAN subinterface has the MAC of its device.
			if !macs[p.MAC] && p.MAC != "" {
				macs[p.MAC] = true
				of[p.MAC] = append(of[p.MAC], p.Name+" of node "+r.Node)
			}
		}
	}
	for _, mac := range slices.Sorted(maps.Keys(of)) {
		if parents := of[mac]; len(parents) > 1 {
			add("parents "+strings.Join(parents, ", "), "they have one MAC, "+mac, "give each machine its own MAC: cloned machines often share it")
		}
	}
	c.podsOfOneMAC(add)
}

// podsOfOneMAC finds pods of two pools in one subnet with one MAC. For those of one pool, the pool has the
// condition SharedMAC.
func (c *Cluster) podsOfOneMAC(add found) {
	pools, of := map[string]*v1alpha1.IPPool{}, map[v1alpha1.MAC][]*v1alpha1.IPLeaseSpec{}
	for i := range c.Pools {
		pools[c.Pools[i].Name] = &c.Pools[i]
	}
	for i := range c.Leases {
		s := &c.Leases[i].Spec
		p := pools[s.Pool]
		if p == nil || s.State != v1alpha1.StateBound || s.Holder == nil || p.AllowsMAC(s.Holder.MAC) {
			continue
		}
		i := slices.IndexFunc(of[s.Holder.MAC], func(o *v1alpha1.IPLeaseSpec) bool {
			return o.Pool != s.Pool && inventory.ShareMAC(o, s) && p.InSubnetOf(pools[o.Pool])
		})
		if i >= 0 {
			add(inventory.PlaceOf(s), "it has the MAC "+s.Holder.MAC+" of "+inventory.PlaceOf(of[s.Holder.MAC][i]),
				"give one of them another MAC, such as in the annotation of Multus")
		}
		of[s.Holder.MAC] = append(of[s.Holder.MAC], s)
	}
}

// forwarding finds a family that pools have, and that a node does not forward.
func (c *Cluster) forwarding(r Report, add found) {
	for _, family := range r.ForwardingOff {
		if slices.ContainsFunc(c.Pools, func(p v1alpha1.IPPool) bool { return strings.Contains(p.Spec.Subnet, ":") == (family == "ipv6") }) {
			add("node "+r.Node, "it does not forward "+family+", so its pods get no answers of Services",
				"sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1, and the setting that the event ForwardingOff of the Node names; keep them over a restart")
		}
	}
}

// answers finds gateways, and pods of other nodes, that do not answer on the segment.
func (c *Cluster) answers(r Report, add found) {
	for _, a := range r.Answers {
		if a.MAC != "" || a.OfNode {
			continue
		}
		what, do := c.silence(a.Address)
		if a.Error != "" {
			what = a.Error
		}
		add(parentOf(r, a.Parent), what, do)
	}
}

// silence names the host that does not answer for an address, and the remedy.
func (c *Cluster) silence(addr netip.Addr) (what, do string) {
	for i := range c.Pools {
		if c.Pools[i].Gateway() == addr {
			return fmt.Sprintf("the gateway %s of pool %s does not answer", addr, c.Pools[i].Name),
				"look at the router, at spec.gateway of the pool, and at the VLAN of the parent"
		}
	}
	what, do = "no host answers for "+addr.String(), "look at the VLAN of the parent, and at the switch"
	for i := range c.Leases {
		if l := &c.Leases[i]; l.Spec.Addr() == addr {
			return fmt.Sprintf("%s, %s of node %s, does not answer", addr, cmp.Or(inventory.PodOf(&l.Spec), "pod"), l.Spec.NodeName), do
		}
	}
	return what, do
}
