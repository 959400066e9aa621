// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/internal/poolset"
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
			if err := c.check(); err != nil {
				t.Fatalf("history %d, step %d: %v", seed, c.now, err)
			}
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
	for name, g := range p.Grounds {
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
