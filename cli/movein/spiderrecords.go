// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// reservations are the names of the SpiderReservedIPs of a move, for IPv4 and for IPv6.
func reservations(network string) []string { return v1alpha1.MoveReservations(MoveName(network)) }

// Reservation is a SpiderReservedIP of a move. Without an address there is none.
type Reservation struct {
	Name    string
	Version int64
	IPs     []any
}

// Reservations returns those that keep Spiderpool from giving ranges. It reads addresses and ranges, and no CIDRs.
func Reservations(network string, ends []netip.Addr) []Reservation {
	names := reservations(network)
	all := []Reservation{{names[0], 4, nil}, {names[1], 6, nil}}
	for pair := range slices.Chunk(ends, 2) {
		r := &all[0]
		if pair[0].Is6() {
			r = &all[1]
		}
		text := pair[0].String()
		if pair[1] != pair[0] {
			text += "-" + pair[1].String()
		}
		r.IPs = append(r.IPs, text)
	}
	return all
}

// reservations plans the freeze of Spiderpool, and what blocks one of its pools.
func (p *Plan) reservations(f Facts, networks []network) {
	if f.From != v1alpha1.MoveSpiderpool {
		return
	}
	if len(networks[0].ranges) == 0 && len(f.Moving) == 0 {
		p.block("definition %s names no SpiderIPPool, and none of its pods has an address of one: write %s or %s into it first", f.Network, poolsKey4, poolsKey6)
	}
	for _, r := range networks[0].ranges {
		p.freeze = p.freeze.Plus(r.set)
		pool := r.pool
		switch {
		case pool.subnet != "":
			p.block("SpiderSubnet %s has made SpiderIPPool %s for an application, and such pools do not move by this command: move by hand, with the IPSubnet that `-o yaml` prints", pool.subnet, pool.name)
			p.subnet(f, pool.subnet)
		case pool.spec.Disable != nil && *pool.spec.Disable:
			p.block("SpiderIPPool %s is disabled, and its pool would be open: enable or delete it", pool.name)
			continue
		case len(pool.spec.IPs) == 0:
			p.block("SpiderIPPool %s has no ips, and a pool without ips has the whole subnet: give it some, or delete it", pool.name)
		}
		for _, name := range pool.spec.MultusName {
			if !strings.Contains(name, "/") {
				p.block("SpiderIPPool %s: multusName %s has no namespace: write it before the name", pool.name, name)
			}
		}
		p.Giving = append(p.Giving, fmt.Sprintf("SpiderIPPool %s would give its addresses again to pods that name it: set disable in it, or delete it", pool.name))
	}
	if p.freeze.Len() > MaxFiles {
		p.block("the freeze reserves all addresses, the SpiderIPPools have more than %d, and Spiderpool makes a list of the reserved ones in each ADD: narrow their ips", MaxFiles)
	}
	ours := f.Spiderpool.reservedFor(f.Network)
	p.holes = append(p.holes, f.Unreserved(p.freeze)...)
	p.freeze = p.freeze.Plus(ours)           // a start narrows none
	for _, s := range f.Spiderpool.subnets { // also of a SpiderIPPool that was deleted since
		left := s.set
		for _, pool := range f.Spiderpool.pools {
			left = left.Minus(pool.set)
		}
		if again := left.And(p.freeze).Entries(); len(again) > 0 {
			p.Giving = append(p.Giving, fmt.Sprintf("SpiderSubnet %s would give %s to other SpiderIPPools: take these out of its ips", s.name, strings.Join(again, ", ")))
		}
	}
}

// Unreserved returns which of these addresses the SpiderReservedIPs of the move lack, as clauses.
func (f Facts) Unreserved(set poolset.Set) []string {
	lacks := set.Minus(f.Spiderpool.reservedFor(f.Network)).Entries()
	if f.From != v1alpha1.MoveSpiderpool || len(lacks) == 0 {
		return nil
	}
	return []string{"no SpiderReservedIP of the move has " + strings.Join(lacks, ", ")}
}

// annotated tells of pods whose annotation names pools of the move for one interface, and pools that stay for another one.
// Spiderpool gives addresses for all of its entries in the first ADD. A block would forbid to move both networks.
func (f Facts) annotated(pools []v1alpha1.IPPool) (notes []string) {
	if f.From != v1alpha1.MoveSpiderpool {
		return nil
	}
	isIn := func(pools []v1alpha1.IPPool) func(string) bool {
		return func(pattern string) bool {
			return slices.ContainsFunc(pools, func(o v1alpha1.IPPool) bool { is, _ := path.Match(pattern, o.Name); return is })
		}
	}
	moves, isOurs, told := isIn(pools), isIn(f.Pools), map[string]bool{}
	for _, pod := range f.Pods {
		var move, stay []string
		for _, names := range pod.Named {
			if slices.ContainsFunc(names, moves) {
				move = append(move, names...)
			} else if slices.ContainsFunc(names, isOurs) == f.isBecoming { // it is not where this move goes
				stay = append(stay, names...)
			}
		}
		template := fmt.Sprint(pod.Namespace, pod.OwnerKind, pod.OwnerName, move, stay)
		if !pod.Finished && len(move) > 0 && len(stay) > 0 && !told[template] {
			told[template] = true // once for all pods of a Deployment
			notes = append(notes, fmt.Sprintf("annotation ipam.spidernet.io/ippools of pod %s names %s, which move, and %s, which do not. Spiderpool gives addresses of all in the first ADD, so such pods do not start until both have moved: move both, one after the other, or take the entry out first",
				pod, strings.Join(move, ", "), strings.Join(stay, ", ")))
		}
	}
	return notes
}

// subnet plans the IPSubnet that a SpiderSubnet becomes by hand.
func (p *Plan) subnet(f Facts, name string) {
	at := slices.IndexFunc(f.Spiderpool.subnets, func(s spiderSubnet) bool { return s.name == name })
	if at < 0 || slices.ContainsFunc(p.Subnets, func(s v1alpha1.IPSubnet) bool { return s.Name == name }) {
		return
	}
	s := f.Spiderpool.subnets[at]
	spec := *s.spec.DeepCopy()
	spec.ExcludeIPs = append(spec.ExcludeIPs, s.set.And(f.Spiderpool.reservedBut(f.Network)).Entries()...)
	p.Subnets = append(p.Subnets, v1alpha1.IPSubnet{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "IPSubnet"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
	})
}

// noEndpoint begins why the address of a record is held that no SpiderEndpoint has yet.
const noEndpoint = "no SpiderEndpoint of its pod has it"

// allocated are the records of Spiderpool.
func (p *Plan) allocated(f Facts, networks []network, users map[netip.Addr][]user) (all []found) {
	pods := map[string]Pod{}
	for _, pod := range f.Pods {
		pods[pod.UID] = pod
	}
	seen := map[string]bool{}
	recorded := map[netip.Addr]bool{}
	for _, n := range networks {
		for _, r := range n.ranges {
			for a, record := range r.pool.given {
				recorded[a] = true
				if seen[r.pool.name] {
					break
				}
				said := fmt.Sprintf("SpiderIPPool %s, of %s", r.pool.name, cmp.Or(record.Pod, "no pod"))
				pod, exists := pods[record.UID]
				all = append(all, found{a, said, agreed(a, record, said, f.Spiderpool.endpoints[a], r.pool.name, pod, exists, users[a])})
			}
			seen[r.pool.name] = true
		}
	}
	for a, endpoints := range f.Spiderpool.endpoints {
		if recorded[a] || !p.freeze.Contains(a) {
			continue
		}
		namespace, name, _ := strings.Cut(endpoints[0].name, "/")
		r := v1alpha1.MoveRecord{Address: a.String(), Node: endpoints[0].node, Namespace: namespace, Pod: name}
		if all := users[a]; len(all) > 0 && all[0].pod.UID == endpoints[0].uid {
			r = all[0].record(a)
		}
		r.Record = "SpiderEndpoint " + endpoints[0].name
		r.Hold = noRecord + ", only " + r.Record
		all = append(all, found{a, r.Record, r})
	}
	return all
}

// agreed plans what becomes of an address. It is adopted if SpiderIPPool, SpiderEndpoint and pod agree.
func agreed(a netip.Addr, record SpiderRecord, said string, endpoints []endpoint, pool string, pod Pod, exists bool, users []user) v1alpha1.MoveRecord {
	var e endpoint
	if len(endpoints) == 1 {
		e = endpoints[0]
	}
	r := recordOf(a, Allocation{PodRef: record.Pod, IfName: e.nic}, said, pod, exists, users)
	if r.Hold != "" {
		return r
	}
	switch {
	case len(endpoints) == 0:
		r.Hold = noEndpoint
	case len(endpoints) > 1:
		r.Hold = fmt.Sprintf("SpiderEndpoints %s and %s have it", endpoints[0].name, endpoints[1].name)
	case e.uid != record.UID:
		r.Hold = fmt.Sprintf("SpiderEndpoint %s has it for another pod", e.name)
	case e.pool != pool:
		r.Hold = fmt.Sprintf("SpiderEndpoint %s has it of SpiderIPPool %s", e.name, e.pool)
	case e.node != r.Node:
		r.Hold = fmt.Sprintf("SpiderEndpoint %s names node %s, and its pod node %s", e.name, e.node, r.Node)
	case e.mac != "" && r.MAC != "" && e.mac != r.MAC:
		r.Hold = fmt.Sprintf("SpiderEndpoint %s names MAC %s, and network-status MAC %s", e.name, e.mac, r.MAC)
	}
	r.MAC = cmp.Or(r.MAC, e.mac)
	return r
}
