// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Plan is the work of one pass.
type Plan struct {
	// Make are the new pools. Resize are pools with changed addresses or settings.
	Make   []Make
	Resize []Resize
	// Delete are pools of applications that are gone, or no longer ask for the IPSubnet. They have no
	// lease.
	Delete []*v1alpha1.IPPool
	// Unserved are the applications that lack addresses.
	Unserved []Unserved
	// Carving has the addresses that pools are about to get, by IPSubnet and pool: those of Make and
	// Resize, and those of an earlier pass that are not in their pool yet.
	Carving map[string]map[string]poolset.Set
	// Subnets are the IPSubnets after the plan, by name.
	Subnets map[string]*subnetState
	// Managed are the existing pools that the controller made.
	Managed []*managedPool
	// Settling reports whether pools give withdrawn addresses back as soon as these are settled.
	Settling bool
}

// Make is a new pool, and the application that it is for.
type Make struct {
	Pool v1alpha1.IPPool
	Ref  owner.Ref
}

// Resize is a changed pool.
type Resize struct {
	// Pool is the pool with its new spec, and the resourceVersion that the plan has seen.
	Pool *v1alpha1.IPPool
	// Gained are the addresses that the pool gets from its IPSubnet, and Released those that it gives
	// back.
	Gained, Released poolset.Set
}

// Unserved is an application that lacks addresses.
type Unserved struct {
	Ref owner.Ref
	v1alpha1.Unserved
	IPv6 bool
	// Subnets are the IPSubnets that it names.
	Subnets []string
}

// Gives reports whether the plan gives addresses of an IPSubnet to pools.
func (p Plan) Gives() bool {
	return len(p.Make) > 0 || slices.ContainsFunc(p.Resize, func(r Resize) bool { return r.Gained.Len() > 0 })
}

// MakePlan decides which pools are made, resized and deleted. It is a pure function, and its property
// test is the specification:
//
//   - Pools never have a common address.
//   - An address with a lease of a pool stays in this pool.
//   - A pool gives an address back in two steps: it excludes the address, and removes it once it is
//     settled that no lease was created meanwhile.
func MakePlan(f Facts) Plan {
	all, taken := managedPools(f)
	p := &planner{
		facts: f, managedPools: map[place][]*managedPool{},
		plan: Plan{Carving: map[string]map[string]poolset.Set{}, Managed: all, Subnets: subnetStates(f, taken)},
	}
	deleting := map[string]*managedPool{}
	for _, pl := range all {
		if g := p.plan.Subnets[pl.Spec.IPSubnet]; g != nil {
			g.perNamespace[pl.Spec.Application.Namespace] += int64(pl.ips.Len())
		}
		if pl.DeletionTimestamp != nil {
			deleting[pl.Name] = pl
			continue
		}
		p.managedPools[pl.place()] = append(p.managedPools[pl.place()], pl)
	}
	p.recall(all)
	asked := slots(f.Applications)
	p.rename(asked)
	for _, s := range asked {
		p.serve(s, deleting)
	}
	for i := range f.Applications {
		if app := &f.Applications[i]; app.Problem != nil {
			p.unserved(slot{app: app}, app.Problem.Error())
		}
	}
	p.clear()
	return p.plan
}

type planner struct {
	facts Facts
	// managedPools are the pools that no slot has claimed yet.
	managedPools map[place][]*managedPool
	plan         Plan
}

// recall takes over the addresses that an earlier pass has carved and that are not in their pool
// yet.
func (p *planner) recall(all []*managedPool) {
	has := map[string]poolset.Set{}
	for _, pl := range all {
		has[pl.Name] = pl.ips
	}
	for _, g := range p.plan.Subnets {
		for pool, s := range g.carving {
			if s.Minus(has[pool]).Len() > 0 {
				p.carve(g.Name, pool, s)
			}
		}
	}
}

func (p *planner) carve(subnet, pool string, s poolset.Set) {
	if p.plan.Carving[subnet] == nil {
		p.plan.Carving[subnet] = map[string]poolset.Set{}
	}
	p.plan.Carving[subnet][pool] = p.plan.Carving[subnet][pool].Plus(s)
}

// rename gives a pool to the slot that asks for the same interface in another way: by its name
// instead of its number in the annotation, or the other way round. A pool that was renamed before
// is recognized by its own name, which contains the interface for which it was made.
func (p *planner) rename(asked []slot) {
	isAsked := map[place]bool{}
	for _, s := range asked {
		isAsked[s.place()] = true
	}
	for _, s := range asked {
		if len(p.managedPools[s.place()]) > 0 {
			continue
		}
		for _, pl := range p.plan.Managed {
			at := pl.place()
			if pl.DeletionTimestamp == nil && !isAsked[at] && at.Identity == IdentityOf(s.app.Ref) && at.ipv6 == s.ipv6 &&
				(slices.Contains(s.app.Demand.FormerNames(s.iface), at.iface) || pl.Name == poolName(s, pl.Spec.IPSubnet)) {
				p.managedPools[s.place()] = p.managedPools[at]
				delete(p.managedPools, at)
				break
			}
		}
	}
}

// serve gives a slot its pool. A pool that it has already stays, also if an IPSubnet that is named
// earlier has room by now. The pool of an IPSubnet that no longer serves the namespace ends with its last
// lease.
func (p *planner) serve(s slot, deleting map[string]*managedPool) {
	mine, others := []*managedPool{}, []*managedPool{}
	for _, pl := range p.managedPools[s.place()] {
		if slices.Contains(s.names, pl.Spec.IPSubnet) && p.otherNamespaces(pl.Spec.IPSubnet, s) == "" && len(mine) == 0 {
			mine = append(mine, pl)
		} else {
			others = append(others, pl)
		}
	}
	p.managedPools[s.place()] = others
	switch {
	case s.app.Problem != nil:
		return
	case s.app.Uncounted != nil && !s.app.Demand.Size.Fixed:
		// A pool that it has stays as it is.
		p.unserved(s, uncountedMessage(s.app.Uncounted))
	case len(mine) > 0:
		p.fit(s, mine[0])
	case s.want() > 0:
		p.begin(s, deleting)
	}
}

// begin makes the pool of a slot in the first IPSubnet with room for it.
func (p *planner) begin(s slot, deleting map[string]*managedPool) {
	want := s.want()
	if want > demand.MaxAddresses {
		p.unserved(s, fmt.Sprintf("%d addresses are wanted, and a pool has at most %d: split the application", want, demand.MaxAddresses))
		return
	}
	var why []string
	for _, name := range s.names {
		g, reason := p.subnetState(name, s)
		if g == nil {
			why = append(why, reason)
			continue
		}
		pool := poolName(s, name)
		namespace := s.app.Ref.Namespace
		// The reasons contain no numbers that other applications change: a new reason is an event.
		switch {
		case deleting[pool] != nil:
			why = append(why, endingMessage(deleting[pool]))
			continue
		case g.room(namespace) < want:
			why = append(why, fmt.Sprintf("%d addresses are wanted, and maxPerNamespace of IPSubnet %s leaves fewer to namespace %s", want, name, namespace))
			continue
		case g.freeFor(pool).Len() < want:
			why = append(why, fmt.Sprintf("%d addresses are wanted, and IPSubnet %s has fewer left", want, name))
			continue
		}
		got := g.take(pool, namespace, want)
		p.plan.Make = append(p.plan.Make, Make{newPool(s, g, pool, got), s.app.Ref})
		p.carve(name, pool, got)
		return
	}
	p.unserved(s, strings.Join(why, "; "))
}

// subnetState returns the IPSubnet of a name if it may serve a slot, or the reason why it may not.
func (p *planner) subnetState(name string, s slot) (*subnetState, string) {
	g := p.plan.Subnets[name]
	switch {
	case g == nil:
		return nil, fmt.Sprintf("IPSubnet %s does not exist", name)
	case g.DeletionTimestamp != nil:
		return nil, fmt.Sprintf("IPSubnet %s is being deleted", name)
	case g.problem != nil:
		return nil, fmt.Sprintf("IPSubnet %s is invalid: %s", name, condition.Problems(g.problem))
	case isIPv6(g.Spec.Subnet) != s.ipv6:
		return nil, fmt.Sprintf("IPSubnet %s is of the other IP version", name)
	}
	if why := p.otherNamespaces(name, s); why != "" {
		return nil, fmt.Sprintf("IPSubnet %s is for other namespaces: %s", name, why)
	}
	return g, ""
}

// otherNamespaces returns why an IPSubnet does not serve the namespace of a slot, or "".
func (p *planner) otherNamespaces(subnet string, s slot) string {
	g, namespace := p.plan.Subnets[subnet], s.app.Ref.Namespace
	if g == nil {
		return ""
	}
	_, why := poolset.OtherNamespaces(&g.AsPool().Spec, namespace, p.facts.Namespaces[namespace])
	return why
}

// fit resizes the pool of a slot.
func (p *planner) fit(s slot, pl *managedPool) {
	want := s.want()
	if want > demand.MaxAddresses {
		p.unserved(s, fmt.Sprintf("%d addresses are wanted, and pool %s has at most %d: split the application", want, pl.Name, demand.MaxAddresses))
		want = demand.MaxAddresses
	}
	g, reason := p.subnetState(pl.Spec.IPSubnet, s)
	if g == nil {
		// The pool keeps its addresses: a bad edit of the IPSubnet must not take them.
		if pl.ips.Minus(pl.excluded).Len() < want {
			p.unserved(s, reason)
		}
		return
	}
	namespace := s.app.Ref.Namespace
	ips, excluded := pl.ips, pl.excluded.Minus(pl.leased)
	// An ADD that knew an earlier version of the pool may have leased an address that left it since.
	strays := pl.leased.Minus(ips).And(g.valid)
	if strays.Len() > 0 {
		strays = strays.Minus(p.others(pl))
		ips = ips.Plus(strays)
	}
	proper := ips.And(g.valid).Minus(p.facts.Reserved).Minus(pl.lost)
	usable := proper.Minus(excluded)
	var gained poolset.Set
	switch n := usable.Len(); {
	case n < want:
		excluded = excluded.Minus(proper.And(excluded).First(want - n))
		missing := want - proper.Minus(excluded).Len()
		gained = g.take(pl.Name, namespace, missing)
		ips = ips.Plus(gained)
		if gained.Len() < missing {
			why := fmt.Sprintf("IPSubnet %s has none left", g.Name)
			if g.room(namespace) == 0 {
				why = fmt.Sprintf("maxPerNamespace of IPSubnet %s leaves no more to namespace %s", g.Name, namespace)
			}
			p.unserved(s, fmt.Sprintf("%d addresses are wanted, and pool %s has fewer: %s", want, pl.Name, why))
		}
	case n > want:
		excluded = excluded.Plus(usable.Minus(pl.leased).Last(n - want))
	}
	excluded = excluded.Plus(ips.Minus(proper).Minus(pl.leased).Minus(gained))
	released := p.facts.Settled[pl.Name].And(excluded).And(ips).Minus(pl.leased)
	ips, excluded = ips.Minus(released), excluded.Minus(released).And(ips)
	p.plan.Settling = p.plan.Settling || excluded.Len() > 0
	if ips.Len() == 0 {
		// An empty list would mean the whole subnet.
		p.plan.Delete = append(p.plan.Delete, pl.IPPool)
		return
	}
	pool := pl.DeepCopy()
	setSpec(pool, s, g)
	if !ips.Equal(pl.ips) {
		pool.Spec.IPs = ips.Entries()
	}
	if !excluded.Equal(pl.excluded) {
		pool.Spec.ExcludeIPs = excluded.Entries()
	}
	if !equality.Semantic.DeepEqual(&pool.Spec, &pl.Spec) {
		p.plan.Resize = append(p.plan.Resize, Resize{pool, gained.Plus(strays), released})
	}
	if gained.Len()+strays.Len() > 0 {
		p.carve(g.Name, pl.Name, gained.Plus(strays))
	}
}

// others returns the addresses of the network that belong to other pools, or are about to.
func (p *planner) others(pl *managedPool) poolset.Set {
	var sets []poolset.Set
	for i := range p.facts.Pools {
		pool := &p.facts.Pools[i]
		if pool.Name != pl.Name && pool.Spec.Network == pl.Spec.Network && pool.Spec.IPSubnet != "" {
			s, _ := poolset.Parse(pool.Spec.IPs)
			sets = append(sets, s)
		}
	}
	for subnet, pools := range p.plan.Carving {
		for name, s := range pools {
			if name != pl.Name && p.plan.Subnets[subnet].Spec.Network == pl.Spec.Network {
				sets = append(sets, s)
			}
		}
	}
	return poolset.Union(sets...)
}

// clear deletes the pools that no application asks for. It keeps those with leases, and those that
// are kept for the next application of their name.
func (p *planner) clear() {
	wanted, unsure := map[Identity]bool{}, map[Identity]bool{}
	maps.Copy(unsure, p.facts.Unsure)
	for i := range p.facts.Applications {
		app := &p.facts.Applications[i]
		wanted[IdentityOf(app.Ref)] = true
		if app.Problem != nil {
			unsure[IdentityOf(app.Ref)] = true
		}
	}
	for at, managedPools := range p.managedPools {
		for _, pl := range managedPools {
			isKept := pl.Spec.Application.Reclaim != nil && !*pl.Spec.Application.Reclaim
			if unsure[at.Identity] || pl.leased.Len() > 0 || isKept && !wanted[at.Identity] {
				continue
			}
			p.plan.Delete = append(p.plan.Delete, pl.IPPool)
		}
	}
	slices.SortFunc(p.plan.Delete, func(a, b *v1alpha1.IPPool) int { return strings.Compare(a.Name, b.Name) })
}

// endingMessage names what keeps a deleted pool, and so delays the next one of its name.
func endingMessage(pl *managedPool) string {
	if pl.leased.Len() == 0 {
		return fmt.Sprintf("pool %s was deleted, and another one is made once it is gone", pl.Name)
	}
	return fmt.Sprintf("pool %s was deleted, and another one is made once its last lease has ended: end the pods that "+
		"'kubectl get fllease --field-selector spec.pool=%s' lists", pl.Name, pl.Name)
}

// uncountedMessage tells what to do about an application whose number of pods is not known.
func uncountedMessage(err error) string {
	if isPassing(err) {
		return fmt.Sprintf("the number of its pods cannot be read now: %s; the controller asks again every %s", err, askAgain)
	}
	return fmt.Sprintf("the number of its pods is not known (%s): give a fixed number in the annotation ippool-ip-number", err)
}

func (p *planner) unserved(s slot, message string) {
	p.plan.Unserved = append(p.plan.Unserved, Unserved{
		Ref: s.app.Ref, Subnets: s.names, IPv6: s.ipv6,
		Unserved: v1alpha1.Unserved{Application: s.application(), Message: message},
	})
}

// newPool returns the pool of a slot.
func newPool(s slot, g *subnetState, name string, ips poolset.Set) v1alpha1.IPPool {
	pool := v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1alpha1.FinalizerPool}}}
	pool.Spec.Subnet, pool.Spec.Network, pool.Spec.IPSubnet = g.Spec.Subnet, g.Spec.Network, g.Name
	pool.Spec.IPs = ips.Entries()
	// A stock would take the addresses that are counted for the replicas.
	pool.Spec.Warm = new(int64)
	pool.Spec.NamespaceName = []string{s.app.Ref.Namespace}
	setSpec(&pool, s, g)
	return pool
}

// setSpec sets the fields that follow the IPSubnet and the application.
func setSpec(pool *v1alpha1.IPPool, s slot, g *subnetState) {
	pool.Spec.Gateway, pool.Spec.Vlan, pool.Spec.Routes = g.Spec.Gateway, g.Spec.Vlan, g.Spec.Routes
	pool.Spec.Application = new(s.application())
	if !s.app.Demand.Reclaim {
		pool.Spec.Application.Reclaim = new(false)
	}
	// People may edit these three of a single pool, unless the IPSubnet sets them.
	if g.Spec.SourceGuard != "" {
		pool.Spec.SourceGuard = g.Spec.SourceGuard
	}
	if g.Spec.SourceGuardAllow != nil {
		pool.Spec.SourceGuardAllow = g.Spec.SourceGuardAllow.DeepCopy()
	}
	if g.Spec.RouterAdvertisements != "" {
		pool.Spec.RouterAdvertisements = g.Spec.RouterAdvertisements
	}
}

const (
	// longestPart bounds the parts of the name of a pool that are for people.
	longestPart = 40
	// digits is the length of the part that makes the name unique.
	digits = 12
)

// poolName returns the name of the pool of a slot in an IPSubnet: for people the name of the
// application, the interface and the family, and a hash of all that identifies the pool.
func poolName(s slot, subnet string) string {
	r, family := s.app.Ref, "v4"
	if s.ipv6 {
		family = "v6"
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{r.Group, r.Kind, r.Namespace, r.Name, s.iface, family, subnet}, "/")))
	iface := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(s.iface))
	name := strings.Trim(r.Name[:min(len(r.Name), longestPart)], "-.")
	return fmt.Sprintf("%s-%s-%s-%s", name, iface, family, hex.EncodeToString(sum[:])[:digits])
}
