// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

const (
	// runs is the number of random histories, each with this number of steps.
	runs, steps = 60, 400
	// slowest is the time of the slowest ADD. An exclusion is settled after it.
	slowest = 5
)

// errEmpty: a pool without ips would have the whole subnet.
var errEmpty = errors.New("its addresses are empty or cannot be read")

// add is an ADD: it chose an address from the pool as it was then.
type add struct {
	app, pool string
	addr      netip.Addr
	from      int
}

// TestPoolsOfASubnetAreDisjointAtEveryMoment runs random histories of applications, pods and two
// controllers. A controller may stop before any of its writes, for ever or for a while, as one that
// does not know yet that it is no longer the leader.
func TestPoolsOfASubnetAreDisjointAtEveryMoment(t *testing.T) {
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := newCluster(subnetOf("a", "10.0.0.0/24", "10.0.0.10-10.0.0.40"), subnetOf("b", "10.0.0.0/24", "10.0.0.30-10.0.0.60"))
		var adds []add
		rivals := [2][]func() bool{}
		for range steps {
			c.now++
			app := fmt.Sprintf("app-%d", r.IntN(6))
			switch r.IntN(12) {
			case 0:
				d := deployment(app, r.IntN(6), [][]string{{"a"}, {"b"}, {"a", "b"}}[r.IntN(3)]...)
				if r.IntN(3) == 0 {
					d.Demand.Size = demand.Size{Fixed: true, Addresses: 1 + r.IntN(8)}
				}
				d.Demand.Reclaim = r.IntN(4) > 0
				if old, ok := c.apps[app]; ok {
					d.Demand.Interfaces = old.Demand.Interfaces
				}
				c.apps[app] = d
			case 1:
				delete(c.apps, app)
			case 2:
				c.reserved, _ = poolset.Parse([]string{fmt.Sprintf("10.0.0.%d", 10+r.IntN(50))})
			case 3, 4, 5: // an ADD begins
				if pool, ok := c.poolOf(app); ok {
					if s := c.handsOut(pool.Name); s.Len() > 0 {
						adds = append(adds, add{app, pool.Name, s.At(r.Uint64N(s.Len())), c.now})
					}
				}
			case 6: // a pod ends
				for addr := range c.leases {
					delete(c.leases, addr)
					break
				}
			case 7, 8, 9: // a controller goes on, or reads the cluster again
				who := r.IntN(2)
				switch {
				case len(rivals[who]) == 0 || r.IntN(8) == 0:
					rivals[who] = c.steps(MakePlan(c.facts(slowest)))
				case rivals[who][0]():
					rivals[who] = rivals[who][1:]
				default:
					rivals[who] = nil
				}
			case 10, 11:
				c.pass(slowest)
			}
			// The ADDs create their leases.
			var left []add
			for _, a := range adds {
				if c.now-a.from < slowest && r.IntN(2) == 0 {
					left = append(left, a)
					continue
				}
				_, taken := c.leases[a.addr]
				_, wanted := c.apps[a.app]
				if _, exists := c.pools[a.pool]; exists && wanted && !taken {
					c.leases[a.addr] = a.pool
				}
			}
			adds = left
			err := c.check()
			check.Must(t, err == nil, "history %d, step %d: %v", seed, c.now, err)
		}
	}
}

// check returns an error if two pools have a common address, or a living pod's address is in no pool or
// in another one.
func (c *cluster) check() error {
	owners := map[netip.Addr]string{}
	for name, pool := range c.pools {
		ips, err := poolset.Parse(pool.Spec.IPs)
		if err != nil || ips.Len() == 0 {
			return fmt.Errorf("pool %s has %v: %w", name, pool.Spec.IPs, errors.Join(errEmpty, err))
		}
		for i := range ips.Len() {
			if other, ok := owners[ips.At(i)]; ok {
				return fmt.Errorf("pools %s and %s have %s", name, other, ips.At(i))
			}
			owners[ips.At(i)] = name
		}
	}
	for addr, pool := range c.leases {
		if owners[addr] != pool {
			return fmt.Errorf("the pod with %s has it of pool %s, and pool %q has it now", addr, pool, owners[addr])
		}
	}
	if c.now%20 > 0 {
		return nil // the account is slow
	}
	return c.account(owners)
}

// account returns an error if an address is neither free, nor in a pool, nor about to be, nor withheld.
func (c *cluster) account(owners map[netip.Addr]string) error {
	p := MakePlan(c.facts(slowest))
	for name, g := range p.Subnets {
		for i := range g.valid.Len() {
			addr := g.valid.At(i)
			_, inPool := owners[addr]
			planned := false
			for _, pools := range p.Carving {
				for _, s := range pools {
					planned = planned || s.Contains(addr)
				}
			}
			withheld := c.reserved.Contains(addr) || !g.offered.Contains(addr)
			if states := btoi(inPool) + btoi(g.free.Contains(addr)); states > 1 || states == 0 && !planned && !withheld {
				return fmt.Errorf("%s of IPSubnet %s: in a pool %t, free %t, planned %t, withheld %t", addr, name, inPool, g.free.Contains(addr), planned, withheld)
			}
		}
	}
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// at is a time of creation.
func at(second int) metav1.Time {
	return metav1.NewTime(time.Date(2030, 1, 1, 0, 0, second, 0, time.UTC))
}

// subnetOf returns an IPSubnet.
func subnetOf(name, subnet string, ips ...string) v1alpha1.IPSubnet {
	return v1alpha1.IPSubnet{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: at(0)}, Spec: v1alpha1.IPSubnetSpec{Subnet: subnet, IPs: ips}}
}

// deployment returns an application that asks for a flexible pool in the named IPSubnets.
func deployment(name string, replicas int, v4 ...string) Application {
	return Application{
		Ref: owner.Ref{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: name}, Created: at(1), Replicas: replicas,
		Demand: demand.Demand{Interfaces: []demand.Interface{{Name: "0", V4: v4}}, Size: demand.Flexible(), Reclaim: true},
	}
}

// cluster is the part of a cluster that a plan reads and writes. Each write is a step of its own.
type cluster struct {
	subnets  map[string]v1alpha1.IPSubnet
	pools    map[string]v1alpha1.IPPool
	apps     map[string]Application
	leases   map[netip.Addr]string // the pool of each lease
	reserved poolset.Set
	labels   map[string]string // of the namespace shop
	version  int
	now      int
	// since is the time since which a pool excludes an address.
	since map[string]map[netip.Addr]int
}

func newCluster(subnets ...v1alpha1.IPSubnet) *cluster {
	c := &cluster{
		subnets: map[string]v1alpha1.IPSubnet{}, pools: map[string]v1alpha1.IPPool{}, apps: map[string]Application{},
		leases: map[netip.Addr]string{}, since: map[string]map[netip.Addr]int{},
	}
	for _, s := range subnets {
		s.ResourceVersion = c.next()
		c.subnets[s.Name] = s
	}
	return c
}

func (c *cluster) next() string { c.version++; return fmt.Sprint(c.version) }

// facts reads the cluster. An exclusion is settled after some ticks.
func (c *cluster) facts(settle int) Facts {
	f := Facts{Namespaces: map[string]map[string]string{"shop": c.labels}, Reserved: c.reserved, Leased: map[string]poolset.Set{}, Settled: map[string]poolset.Set{}}
	for _, s := range c.subnets {
		f.Subnets = append(f.Subnets, *s.DeepCopy())
	}
	for _, p := range c.pools {
		f.Pools = append(f.Pools, *p.DeepCopy())
	}
	for _, a := range c.apps {
		f.Applications = append(f.Applications, a)
	}
	leased := map[string][]string{}
	for addr, pool := range c.leases {
		leased[pool] = append(leased[pool], addr.String())
	}
	for pool, ips := range leased {
		f.Leased[pool], _ = poolset.Parse(ips)
	}
	for pool, since := range c.since {
		var settled []string
		for addr, from := range since {
			if c.now-from > settle {
				settled = append(settled, addr.String())
			}
		}
		f.Settled[pool], _ = poolset.Parse(settled)
	}
	return f
}

// carve writes the intents of a plan. It fails if the IPSubnet has changed since it was read.
func (c *cluster) carve(p Plan, name string) bool {
	s := c.subnets[name]
	if s.ResourceVersion != p.Subnets[name].ResourceVersion {
		return false
	}
	s.Status = p.Status(name, at(c.now))
	s.ResourceVersion = c.next()
	c.subnets[name] = s
	return true
}

// make creates a pool, unless there is one of its name.
func (c *cluster) make(pool v1alpha1.IPPool) bool {
	if _, ok := c.pools[pool.Name]; ok {
		return false
	}
	pool.ResourceVersion, pool.CreationTimestamp = c.next(), at(c.now)
	c.put(pool)
	return true
}

// resize updates a pool, unless it has changed since it was read, or one of the addresses that it gives
// back has a lease.
func (c *cluster) resize(r Resize) bool {
	old, ok := c.pools[r.Pool.Name]
	if !ok || old.ResourceVersion != r.Pool.ResourceVersion {
		return false
	}
	for addr, pool := range c.leases {
		if pool == r.Pool.Name && r.Released.Contains(addr) {
			return false
		}
	}
	pool := *r.Pool.DeepCopy()
	pool.ResourceVersion = c.next()
	c.put(pool)
	return true
}

func (c *cluster) put(pool v1alpha1.IPPool) {
	c.pools[pool.Name] = pool
	excluded, _ := poolset.Parse(pool.Spec.ExcludeIPs)
	was := c.since[pool.Name]
	c.since[pool.Name] = map[netip.Addr]int{}
	for i := range excluded.Len() {
		addr, from := excluded.At(i), c.now
		if since, ok := was[addr]; ok {
			from = since
		}
		c.since[pool.Name][addr] = from
	}
}

// remove deletes a pool without leases, as its finalizer demands.
func (c *cluster) remove(name string) bool {
	for _, pool := range c.leases {
		if pool == name {
			return false
		}
	}
	delete(c.pools, name)
	delete(c.since, name)
	return true
}

// pass is a whole pass of a controller.
func (c *cluster) pass(settle int) Plan {
	p := MakePlan(c.facts(settle))
	for _, step := range c.steps(p) {
		if !step() {
			break
		}
	}
	return MakePlan(c.facts(settle))
}

// steps returns the writes of a plan, in the order of the Reconciler. A step that returns false ends the
// pass.
func (c *cluster) steps(p Plan) []func() bool {
	var steps []func() bool
	for name := range p.Subnets {
		steps = append(steps, func() bool { return c.carve(p, name) })
	}
	for _, m := range p.Make {
		steps = append(steps, func() bool { c.make(m.Pool); return true })
	}
	for _, r := range p.Resize {
		steps = append(steps, func() bool { c.resize(r); return true })
	}
	for _, pool := range p.Delete {
		steps = append(steps, func() bool { c.remove(pool.Name); return true })
	}
	return steps
}

// handsOut returns the addresses that a pool gives to pods.
func (c *cluster) handsOut(pool string) poolset.Set {
	p, ok := c.pools[pool]
	if !ok {
		return poolset.Set{}
	}
	s, _ := poolset.Addresses(&p)
	return s.Minus(c.reserved)
}

// poolOf returns the pool of an application on its first interface, by name.
func (c *cluster) poolOf(app string) (v1alpha1.IPPool, bool) {
	for _, p := range c.pools {
		if a := p.Spec.Application; a != nil && a.Name == app {
			return p, true
		}
	}
	return v1alpha1.IPPool{}, false
}
