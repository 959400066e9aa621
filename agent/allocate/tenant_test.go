// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"

	"github.com/fenceline/fenceline/agent/ipam"
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

// start asks for the addresses of each interface of a new pod, which may have
// the name of one that is gone.
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

// add gets what an interface asks for; with an error, what it got until then
// and would give back.
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
		l, _, err := onDemand(p.t.Context(), p.a, p.wish(r, f, v1alpha1.Holder{
			Namespace: ask.Pod.Namespace, Pod: ask.Pod.Name, ContainerID: p.container, Interface: ask.Interface,
		}))
		if err == nil {
			p.hold(l, who, "")
			return l, nil
		}
		if !p.stock.has(f) {
			return nil, err
		}
	}
}

func (p *tenant) wish(r *rand.Rand, f ipam.Family, holder v1alpha1.Holder) trial {
	lies := r.Uint64()
	return trial{Need: Need{
		Family: f, Share: p.share, Holder: holder,
		// A hint that is wrong about a quarter of the addresses.
		Taken: func(_ *v1alpha1.IPPool, a netip.Addr) bool {
			return (lies>>(a.AsSlice()[len(a.AsSlice())-1]%32))&3 == 0
		},
	}, try: func(l *v1alpha1.IPLease) (bool, error) {
		return isStranger(l.Spec.Addr()), nil // a conflict's lease stays, quarantined
	}}
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
