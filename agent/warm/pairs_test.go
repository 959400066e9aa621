// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"testing"
	"time"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestPairsAreJournalledSeldom(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for range 60 {
			r.keeper.Used("v4", "eth1")
			r.pass(10 * time.Second)
			r.wake()
		}
		if r.book.written() > 2 || len(r.book.all()) != 1 || r.book.all()[0].Parent != "eth1" {
			t.Errorf("%d writes, journalled %v", r.book.written(), r.book.all())
		}
		r.pass(2 * time.Hour)
		check.That(t, len(r.book.all()) == 0, "journalled %v", r.book.all())
	})
}

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
		check.List(t, r.told().lost, []string{string(Surplus), string(Unused)}, "lost")
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
		n := len(r.leases())
		check.That(r.t, n == 2, "%d leases, want 2", n)
	}, v4(unsetWarm))
}

func TestAPairWithOneUseIsOnePod(t *testing.T) {
	now := time.Unix(1, 0)
	p := newPairs([]journal.Pair{{Pool: "v4", Parent: "eth1", Used: now}})
	n := p.all()[eth1].recent(now.Add(time.Minute))
	check.That(t, n == 1, "%d pods, want 1", n)
}

// slowBook calls something while it writes.
type slowBook struct{ during func() }

func (slowBook) Get() ([]journal.Pair, bool) { return nil, false }

// Each ADD is a use.
func TestNoUseWaitsForTheDisk(t *testing.T) {
	now := time.Unix(1, 0)
	p := newPairs([]journal.Pair{{Pool: "a", Parent: "eth1", Used: now}})
	err := p.save(slowBook{func() {
		used := make(chan bool)
		go func() { used <- p.use(Pair{"b", "eth1"}, now) }()
		select {
		case <-used:
		case <-time.After(time.Minute):
			t.Error("a use waits for the journal")
		}
	}}, now)
	check.That(t, err == nil && len(p.all()) == 2, "%v, %v", p.all(), err)
}
