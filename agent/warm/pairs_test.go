// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"testing"
	"time"

	"github.com/fenceline/fenceline/agent/journal"
)

// slowBook calls something while it writes.
type slowBook struct{ during func() }

func (slowBook) Pairs() []journal.Pair { return nil }

func (b slowBook) PutPairs([]journal.Pair) error {
	b.during()
	return nil
}

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
	if err != nil || len(p.all()) != 2 {
		t.Errorf("%v, %v", p.all(), err)
	}
}
