// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"slices"
	"testing"
	"time"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// unsetWarm makes the pool one that does not say how many addresses are kept ready.
func unsetWarm(p *v1alpha1.IPPool) {
	p.Spec.Warm, p.Status.Stock = nil, 2
}

func TestAPoolThatSaysNothingKeepsAsManyAsPodsCame(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.pass(time.Minute)
		r.want()
		r.keeper.Used("v4", "eth1")
		r.pass(proofTakes + time.Second)
		r.ready("10.0.0.2")
		r.pass(30 * time.Minute)
		r.keeper.Used("v4", "eth1")
		r.pass(proofTakes + time.Second)
		r.ready("10.0.0.2", "10.0.0.3")

		r.restart(thisSession)
		r.pass(proofTakes + time.Second)
		r.ready("10.0.0.2", "10.0.0.3")

		r.pass(30 * time.Minute)
		r.want(warm2)
		r.pass(30 * time.Minute)
		r.want()
		if lost := r.told().lost; !slices.Equal(lost, []string{string(Surplus), string(Unused)}) {
			t.Errorf("lost %v", lost)
		}
	}, v4(unsetWarm))
}

func TestAPoolThatSaysNothingGetsItsAddressesBackWhenItHasFew(t *testing.T) {
	inBubble(t, func(_ *testing.T, r *rig) {
		r.keeper.Used("v4", "eth1")
		r.warmed()
		r.changePool(func(p *v1alpha1.IPPool) { p.Status.Stock = 1 })
		r.want(warm2)
		r.changePool(func(p *v1alpha1.IPPool) { p.Status.Stock = 0 })
		r.want()
		r.changePool(func(p *v1alpha1.IPPool) { p.Status.Stock = 2 })
		r.pass(proofTakes + time.Second)
		if n := len(r.leases()); n != 2 {
			r.t.Errorf("%d leases, want 2", n)
		}
	}, v4(unsetWarm))
}

// The previous version wrote one time for each pair.
func TestAPairOfTheVersionBeforeIsOnePod(t *testing.T) {
	now := time.Unix(1, 0)
	p := newPairs([]journal.Pair{{Pool: "v4", Parent: "eth1", Used: now}})
	if n := p.all()[eth1].recent(now.Add(time.Minute)); n != 1 {
		t.Errorf("%d pods, want 1", n)
	}
}
