// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Pod is a pod with the interfaces that its annotation network-status names.
type Pod struct {
	Namespace, Name, UID, Node string
	// Ending: it has a deletionTimestamp.
	Finished, Ending bool
	Interfaces       []Interface
	// OwnerKind and OwnerName are those of the controller of its pods, or of a Pod alone. IsStateful: it is a StatefulSet of
	// Kubernetes itself.
	OwnerKind, OwnerName string
	IsStateful           bool
	// Named are the pools of each interface that its annotation ippools of Spiderpool names.
	Named [][]string
}

func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Interface is one entry of network-status. Network is "<namespace>/<name>" of its definition.
type Interface struct {
	Network, Interface, MAC string
	IPs                     []netip.Addr
}

// Facts are what a plan is made of.
type Facts struct {
	// From is the other IPAM.
	From v1alpha1.MoveSource
	// Network is the definition that moves; Definitions are all of the cluster.
	Network     string
	Definitions []Definition
	// Moving are the definitions of a move that has begun. They are in Definitions too.
	Moving []v1alpha1.MoveDefinition
	// MovingPools are the pools of that move.
	MovingPools []string
	// Records are those of whereabouts, in the namespaces RecordsIn, and Slices its NodeSlicePools. Nodes are all nodes,
	// with their files of host-local.
	Records    []Records
	RecordsIn  []string
	Slices     []NodeSlices
	Nodes      []NodeFiles
	Spiderpool Spiderpool
	Pods       []Pod
	// Pools are those of Fenceline.
	Pools []v1alpha1.IPPool

	// isBecoming: the other IPAM has the definitions of a move out already, and Spiderpool the SpiderIPPools.
	isBecoming bool
}

// Change is a definition as it will be.
type Change struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Before, Frozen and Switched are its configurations before the move, while the other IPAM is frozen, and afterwards.
	Before   string `json:"before"`
	Frozen   string `json:"frozen"`
	Switched string `json:"switched"`

	from     v1alpha1.MoveSource
	isSliced bool
}

// Plan is a move that has not begun.
type Plan struct {
	// Blocks are the reasons for which the move cannot begin.
	Blocks []string `json:"blocks,omitempty"`
	// Notes are differences that a person should know.
	Notes   []string          `json:"notes,omitempty"`
	Pools   []v1alpha1.IPPool `json:"pools"`
	Changes []Change          `json:"changes"`
	// Subnets are to be made by hand, since a move makes none.
	Subnets []v1alpha1.IPSubnet `json:"subnets,omitempty"`
	// Records are the addresses in use. A record with hold is held, and the others are adopted.
	Records []v1alpha1.MoveRecord `json:"records"`

	// freeze has the addresses for which host-local gets files, Spiderpool a SpiderReservedIP, and the slices of whereabouts
	// allocations, in the namespace slicesIn.
	freeze   poolset.Set
	slices   []slice
	slicesIn string
	// holes are what lacks of it, as clauses. sandboxes are those that host-local has given addresses; the other IPAMs
	// have none.
	holes     []string
	sandboxes map[sandbox]bool
	// Strangers are the blocks by definitions that are not of the move, and by records that cannot be read. They block all
	// but its way back: it frees nothing that such a definition could not give before.
	Strangers []string `json:"-"`
	// Giving is what would give addresses after the end of the move, as clauses.
	Giving []string `json:"-"`
}

// Held counts the records whose addresses are only held.
func (p Plan) Held() (n int) {
	for _, r := range p.Records {
		if r.Hold != "" {
			n++
		}
	}
	return n
}

func (p *Plan) block(format string, args ...any) {
	p.Blocks = append(p.Blocks, fmt.Sprintf(format, args...))
}
func (p *Plan) stranger(format string, args ...any) {
	p.block(format, args...)
	p.Strangers = append(p.Strangers, fmt.Sprintf(format, args...))
}
func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// PlanOf plans the move of a network from another IPAM.
func PlanOf(f Facts) Plan {
	var p Plan
	for _, problem := range f.Spiderpool.problems {
		p.stranger("%s", problem)
	}
	main, others := p.networks(f)
	if len(p.Blocks) > 0 && (main.from == "" || len(f.Moving) == 0) { // a move that has begun can go back all the same
		return p
	}
	all := append([]network{main}, others...)
	p.pools(f, all)
	p.reservations(f, all)
	p.Notes = append(p.Notes, f.annotated(p.Pools)...)
	for _, n := range all {
		p.change(n)
		p.Notes = append(p.Notes, n.notes...)
		if n.isLost { // only a freeze needs to know the slices without records
			p.block("definition %s: its NodeSlicePool %q has gone, so the slices of nodes without records are not known", n, n.slicing.pool)
		}
		if n.Owner != "" {
			p.note("%s owns definition %s and would undo an edit: make the change there", n.Owner, n)
		}
	}
	p.records(f, all)
	return p
}

// networks returns the network that moves, and the others of its IPAM with addresses of its ranges.
func (p *Plan) networks(f Facts) (main network, others []network) {
	at := slices.IndexFunc(f.Definitions, func(d Definition) bool { return d.String() == f.Network })
	if at < 0 {
		p.block("there is no NetworkAttachmentDefinition %s", f.Network)
		return main, nil
	}
	main, err := f.read(f.Definitions[at])
	if err != nil {
		p.block("definition %s: %v", f.Network, err)
		return network{}, nil
	}
	for i, d := range f.Definitions {
		if i == at {
			continue
		}
		n, err := f.read(d)
		if errors.Is(err, errOtherIPAM) {
			continue
		}
		if shared, _ := shares(main, n); errors.Is(err, errSliced) && !shared {
			continue
		}
		if err != nil {
			p.stranger("definition %s is of %s too, and may have the same addresses: %v", d, f.From, err)
			continue
		}
		switch shared, own := shares(main, n); {
		case f.isMoving(d):
			others = append(others, n)
		case shared && n.slicing != main.slicing:
			p.stranger("definitions %s and %s have the same addresses, and whereabouts divides them between the nodes in different ways: end the pods of one of them and delete it, or move both by hand; never change node_slice_size or network_name in place, since whereabouts forgets its records then", main, n)
		case shared && own:
			p.stranger("definition %s has a range of %s, and others: give it only ranges of that network, or none", n, main)
		case shared && n.networkName != main.networkName:
			p.stranger("definitions %s and %s have the same range and different values of network_name: their records may name one address twice", main, n)
		case shared && n.files.DataDir != main.files.DataDir:
			p.stranger("definitions %s and %s have the same addresses, and host-local keeps their files in %s and in %s, of which the agents see one: give them ranges of their own, or the same dataDir", main, n, main.files.DataDir, n.files.DataDir)
		case shared && f.From == v1alpha1.MoveHostLocal && n.master != main.master:
			p.stranger("definitions %s and %s have the same addresses, and the masters %q and %q: host-local keeps its records by the name of the network, so these may be two segments; give them ranges of their own, or the same master", main, n, main.master, n.master)
		case shared:
			p.note("definition %s has a range of this network, so it moves too", n)
			others = append(others, n)
		}
	}
	return main, others
}

// shares reports whether a network has ranges that overlap those of another one, and ranges that do not.
func shares(main, n network) (shared, own bool) {
	for _, r := range n.ranges {
		if slices.ContainsFunc(main.ranges, func(m served) bool { return m.set.Overlaps(r.set) }) {
			shared = true
		} else {
			own = true
		}
	}
	return shared, own
}

// pools plans one pool for each range of the first network, for the definitions and parents of all.
func (p *Plan) pools(f Facts, all []network) {
	n := all[0]
	if n.networkName != "" {
		p.note("network_name %s separates equal ranges for whereabouts; if this segment is connected to no other one with the same addresses, set network in the pools", n.networkName)
	}
	var definitions, parents []string
	for _, one := range all {
		definitions = append(definitions, one.Definition.String())
		if one.master != "" && !slices.Contains(parents, one.master) {
			parents = append(parents, one.master)
		}
		for i, r := range one.ranges {
			if r.pool == nil && slices.ContainsFunc(one.ranges[:i], func(o served) bool { return o.prefix.Addr().Is4() == r.prefix.Addr().Is4() }) {
				p.block("definition %s has two ranges of one family, and Fenceline gives an interface one address of each: make two definitions", one)
				break
			}
		}
	}
	name := n.Definition.Name
	if hasPool(f, name) { // another namespace may have a network of this name
		name = MoveName(n.Definition.String())
	}
	for i, r := range n.ranges {
		pool := v1alpha1.IPPool{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "IPPool"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.IPPoolSpec{
				Subnet: r.prefix.String(), IPs: r.ips, ExcludeIPs: r.excluded, MultusName: definitions, Parents: parents,
				Disable: ptr.To(true), // until the other IPAM gives no address of it
			},
		}
		if i > 0 {
			pool.Name = fmt.Sprintf("%s-%d", name, i+1)
		}
		if r.gateway.IsValid() {
			pool.Spec.Gateway = ptr.To(r.gateway.String())
		}
		if r.pool != nil {
			pool.Name, pool.Spec = r.pool.name, *r.pool.spec.DeepCopy()
			pool.Spec.ExcludeIPs = append(pool.Spec.ExcludeIPs, r.excluded...)
			pool.Spec.Parents, pool.Spec.Disable = parents, ptr.To(true)
		}
		if _, err := poolset.Validate(&pool); err != nil {
			p.block("range %s: %v", r.prefix, err)
		}
		if hasPool(f, pool.Name) {
			p.block("a pool %s exists: delete it, or give the definition another name", pool.Name)
		}
		for j := range f.Pools {
			other := &f.Pools[j]
			if set, err := poolset.Addresses(other); err == nil && other.Spec.Network == "" && set.Overlaps(r.set) {
				p.block("pool %s has addresses of %s already: delete it before the move", other.Name, r.prefix)
			}
		}
		p.Pools = append(p.Pools, pool)
	}
}

func hasPool(f Facts, name string) bool {
	return slices.ContainsFunc(f.Pools, func(p v1alpha1.IPPool) bool { return p.Name == name })
}

// change plans the configurations of a definition.
func (p *Plan) change(n network) {
	c := Change{Namespace: n.Namespace, Name: n.Definition.Name, Before: n.Config, from: n.from, isSliced: n.slicing != slicing{}}
	var err error
	c.Switched, err = switched(n, p.Pools)
	if c.Frozen = c.Switched; n.from != v1alpha1.MoveSpiderpool { // whose SpiderReservedIP freezes it
		if err == nil {
			c.Frozen, err = without(n.from, n.Config, true, nil)
		}
		if err == nil {
			err = n.givesRest(c.Frozen, n.all())
		}
	}
	if first := n.all().First(1).Ends(); err == nil && len(first) > 0 { // so that the way back is sure
		_, err = c.Returned(first[:1])
	}
	if err != nil {
		p.block("definition %s: %v", n, err)
	}
	p.Changes = append(p.Changes, c)
}
