// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// ledger is what all tenants of a world share. Safe for concurrent use.
type ledger struct {
	mu   sync.Mutex
	live map[string]string // lease → who has it
	// retained are the addresses kept for pods that are gone.
	retained []interfaceOfPod
	sum      tally
}

// interfaceOfPod is an interface with its leases.
type interfaceOfPod struct {
	pod, iface string
	leases     []*v1alpha1.IPLease
}

// tenant is one worker of an agent with the interfaces of its pods.
type tenant struct {
	*world
	*ledger
	t        *testing.T
	a        *Allocator
	end      func(*v1alpha1.IPLease) error
	stock    *stock
	reserved poolset.Set
	node     string
	share    ipam.Share
	held     []interfaceOfPod
	// name is the tenant's; container is that of the pod that it started last.
	// Pods of one name may live at the same time, if one is of a name that is kept.
	name, container string
	started         int
}

// start asks for the addresses of each interface of a new pod, which may have the name of one that is gone.
func (p *tenant) start(r *rand.Rand, name string) {
	kept := interfaceOfPod{}
	if chance(r, 40) {
		if kept = p.takeRetained(); kept.pod != "" {
			name = kept.pod
		}
	}
	p.started++
	p.container = fmt.Sprintf("%s-%s-%d", name, p.name, p.started)
	for _, ask := range p.pod(r, p.node, name) {
		if ask.Interface == kept.iface {
			ask.keep(kept.leases)
		}
		j := judgement{world: p.world, ask: ask, from: p.history.now()}
		leases, err := p.add(r, ask)
		j.to = p.history.now()
		var wrong error
		if err == nil {
			wrong = j.granted(leases)
		} else {
			wrong = j.refused(err)
		}
		check.That(p.t, wrong == nil, "seed %d, %s %s: %v, but: %v", p.seed, name, ask.Interface, err, wrong)
		p.count(err)
		if err != nil {
			p.release(r, leases) // all or nothing
			continue
		}
		p.held = append(p.held, interfaceOfPod{name, ask.Interface, leases})
		if len(ask.kept) > 0 {
			kept = interfaceOfPod{} // they have become this interface's, or were not wanted
		}
	}
	if kept.pod != "" {
		p.retain(kept)
	}
}

// errElsewhere: a kept address is of a pool that does not serve the pod.
var errElsewhere = errors.New("its pool does not serve the pod")

// add gets what an interface asks for; with an error, what it got until then and would give back.
func (p *tenant) add(r *rand.Rand, ask ask) (leases []*v1alpha1.IPLease, err error) {
	choice, err := ipam.ChoosePools(ask.Request, p.pools, p.reserved)
	if err != nil {
		return nil, err
	}
	var kept []*v1alpha1.IPLease
	who := ask.Pod.Name + " " + ask.Interface
	for _, f := range choice.Families {
		l, isKept, err := ask.keptOf(f)
		if l == nil && err == nil {
			l, err = p.bind(r, ask, f, who)
		}
		if err != nil {
			return leases, err
		}
		if isKept {
			kept = append(kept, l)
		} else {
			leases = append(leases, l)
		}
	}
	for _, l := range kept {
		p.hold(l, who, "Retained")
	}
	return append(leases, kept...), nil
}

// bind gets a Warm lease of this agent, or else a free address, as an ADD does.
func (p *tenant) bind(r *rand.Rand, ask ask, f ipam.Family, who string) (*v1alpha1.IPLease, error) {
	for {
		if l := p.stock.take(f); l != nil {
			p.hold(l, who, warmOf(p.node))
			return l, nil
		}
		l, err := p.onDemand(r, f, v1alpha1.Holder{
			Namespace: ask.Pod.Namespace, Pod: ask.Pod.Name, ContainerID: p.container, Interface: ask.Interface,
		})
		if err == nil {
			p.hold(l, who, "")
			return l, nil
		}
		if !p.stock.has(f) {
			return nil, err
		}
	}
}

// onDemand gets a free address.
func (p *tenant) onDemand(r *rand.Rand, f ipam.Family, holder v1alpha1.Holder) (l *v1alpha1.IPLease, err error) {
	lies := r.Uint64()
	wish := trial{Need: Need{
		Family: f, Share: p.share, Holder: holder,
		// A hint that is wrong about a quarter of the addresses.
		Taken: func(_ *v1alpha1.IPPool, a netip.Addr) bool {
			return (lies>>(a.AsSlice()[len(a.AsSlice())-1]%32))&3 == 0
		},
	}, try: func(l *v1alpha1.IPLease) (bool, error) {
		return isStranger(l.Spec.Addr()), nil // a conflict's lease stays, quarantined
	}}
	err = whenAvailable(func() (err error) {
		l, _, err = onDemand(p.t.Context(), p.a, wish)
		return err
	})
	return l, err
}

// whenAvailable calls again while the API server is unavailable, as the kubelet does: this machine may stand for
// longer than a list may take.
func whenAvailable(call func() error) (err error) {
	for range 5 {
		if err = call(); !lease.IsUnavailable(err) {
			break
		}
	}
	return err
}

// stop ends one of the interfaces; the addresses of some are kept for their names.
func (p *tenant) stop(r *rand.Rand) {
	i := r.IntN(len(p.held))
	ended := p.held[i]
	p.held = append(p.held[:i], p.held[i+1:]...)
	if !chance(r, 30) {
		p.release(r, ended.leases)
		return
	}
	for _, l := range ended.leases {
		p.hold(l, "Retained", ended.pod+" "+ended.iface)
	}
	p.retain(ended)
}

func (p *tenant) release(r *rand.Rand, leases []*v1alpha1.IPLease) {
	for _, l := range leases {
		p.unhold(l)
		check.OK(p.t, p.end(l))
		// Some leases end without their node's doing.
		if chance(r, 80) {
			p.a.Freed(l.Spec.Pool, netip.MustParseAddr(l.Spec.Address))
		}
	}
}

// hold notes who has a lease now, which was somebody's, or nobody's if from is empty.
func (p *tenant) hold(l *v1alpha1.IPLease, who, from string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	other := p.live[l.Name]
	check.That(p.t, other == from, "seed %d: %s got %s of %q, not of %q", p.seed, who, l.Name, other, from)
	p.live[l.Name] = who
	switch from {
	case "Retained":
		p.sum.kept++
	case warmOf(p.node):
		p.sum.warm++
	}
}

func (p *tenant) unhold(l *v1alpha1.IPLease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, l.Name)
}

func (p *tenant) retain(i interfaceOfPod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retained = append(p.retained, i)
}

func (p *tenant) takeRetained() (first interfaceOfPod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.retained) > 0 {
		first, p.retained = p.retained[0], p.retained[1:]
	}
	return first
}

func (p *tenant) count(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.sum.served++
		return
	}
	p.sum.refused++
	if none := (*ipam.NoPoolError)(nil); errors.As(err, &none) {
		for _, r := range none.Rejected {
			p.sum.tell(r.Reason, 1)
		}
	}
}

func warmOf(node string) string { return fmt.Sprintf("the stock of %s", node) }

// stock is the Warm leases of an agent. Safe for concurrent use.
type stock struct {
	mu     sync.Mutex
	leases []*v1alpha1.IPLease
}

// take returns a lease that will do for a family, in the order of its pools, or nil.
func (s *stock) take(f ipam.Family) *v1alpha1.IPLease {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(f)
	if i < 0 {
		return nil
	}
	l := s.leases[i]
	s.leases = slices.Delete(s.leases, i, i+1)
	return l
}

func (s *stock) has(f ipam.Family) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(f) >= 0
}

func (s *stock) find(f ipam.Family) int {
	for _, c := range f.Pools {
		i := slices.IndexFunc(s.leases, func(l *v1alpha1.IPLease) bool {
			addr := netip.MustParseAddr(l.Spec.Address)
			return l.Spec.Pool == c.Pool.Name && c.Set.Contains(addr) && (!f.Requested.IsValid() || f.Requested == addr)
		})
		if i >= 0 {
			return i
		}
	}
	return -1
}

func (s *stock) put(l *v1alpha1.IPLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases = append(s.leases, l)
}

func (s *stock) shed() (oldest *v1alpha1.IPLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.leases) > 0 {
		oldest, s.leases = s.leases[0], s.leases[1:]
	}
	return oldest
}

// keepWarm makes a Warm lease of a random pool, or gives one up.
func (p *tenant) keepWarm(r *rand.Rand) {
	switch {
	case chance(r, 20):
		if l := p.stock.shed(); l != nil {
			p.release(r, []*v1alpha1.IPLease{l})
		}
		return
	case !chance(r, 40):
		return
	}
	pool := &p.pools[r.IntN(len(p.pools))]
	labels := labelsOf(p.node)
	c, rejection := ipam.OnNode(pool, p.pools, p.node, labels, p.reserved)
	j := judgement{world: p.world, from: p.history.now()}
	why := append(closed(pool, p.allowsAll[pool.Name], p.allows[pool.Name]), notOnNode(pool, p.node, labels)...)
	if rejection != nil {
		check.That(p.t, slices.Contains(why, rejection.Reason),
			"seed %d: pool %s is kept warm on no %s for %s, not for %v", p.seed, pool.Name, p.node, rejection.Reason, why)
		return
	}
	check.None(p.t, why, "seed %d: pool %s is kept warm on %s in spite of", p.seed, pool.Name, p.node)
	f := ipam.Family{IPv6: c.Subnet.Addr().Is6(), Source: "spec.warm of the pool", Interface: "node " + p.node, Pools: []ipam.Candidate{c}}
	l, err := p.onDemand(r, f, v1alpha1.Holder{})
	j.to = p.history.now()
	if err != nil {
		none := (*ipam.NoPoolError)(nil)
		check.That(p.t, errors.As(err, &none) && j.exhausted(pool) == nil, "seed %d: no Warm lease of pool %s: %v", p.seed, pool.Name, err)
		return
	}
	p.hold(l, warmOf(p.node), "")
	p.stock.put(l)
}

// retainBefore makes Retained leases of before the pools were edited: also of
// addresses that they do not hand out, and of pools that are closed.
func (w *world) retainBefore(t *testing.T, leases Leases, l *ledger) {
	t.Helper()
	r := rand.New(rand.NewPCG(w.seed, 2))
	for i := range w.pools {
		p := &w.pools[i]
		if !chance(r, 50) {
			continue
		}
		old := interfaceOfPod{pod: fmt.Sprintf("old-%d", i), iface: interfaceOf(0)}
		made, err := leases.Create(t.Context(), lease.Request{
			Pool: p.Name, Network: p.Spec.Network, Addr: addrOf(r, p.Spec.Subnet),
			Holder: v1alpha1.Holder{Namespace: "shop", Pod: old.pod, ContainerID: old.pod, Interface: old.iface},
		})
		if err != nil {
			continue // a pool that overlaps this one has the address
		}
		old.leases = []*v1alpha1.IPLease{made}
		l.live[made.Name] = "Retained"
		l.retained = append(l.retained, old)
	}
}

// keep makes leases of a pod of the same name the interface's own. It asks for no other address.
func (a *ask) keep(leases []*v1alpha1.IPLease) {
	a.kept, a.IPs = leases, nil
	for _, l := range leases {
		a.Kept = append(a.Kept, ipam.Kept{Addr: netip.MustParseAddr(l.Spec.Address), Pool: l.Spec.Pool})
	}
}

// keptOf returns the lease of a family that is kept for the interface, or nil.
func (a *ask) keptOf(f ipam.Family) (l *v1alpha1.IPLease, ok bool, err error) {
	for _, l := range a.kept {
		if netip.MustParseAddr(l.Spec.Address).Is6() != f.IPv6 {
			continue
		}
		for _, c := range f.Pools {
			if c.Pool.Name == l.Spec.Pool {
				return l, true, nil
			}
		}
		return nil, false, errElsewhere
	}
	return nil, false, nil
}
