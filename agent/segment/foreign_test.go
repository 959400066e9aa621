// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/foreignhost"
	"github.com/fenceline/fenceline/test/check"
)

// hosts counts the leases of each MAC as the API server does.
func hosts(recorded map[string]int) (*ForeignHosts, *clocktesting.FakePassiveClock) {
	c := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	return &ForeignHosts{Clock: c, Recorded: func(_ context.Context, pool, mac string) (int, error) { return recorded[pool+" "+mac], nil }}, c
}

func (h *ForeignHosts) mustMeet(t *testing.T, parent int, pool, mac string) foreignhost.Action {
	t.Helper()
	return check.Value(h.Meet(t.Context(), parent, pool, mac))(t)
}

func TestEachHostOnEachParentHasItsOwnLimit(t *testing.T) {
	h, _ := hosts(map[string]int{"v4 a": 3})
	for range foreignhost.MaxConflicts {
		check.Equal(t, h.mustMeet(t, 1, "v4", "a"), foreignhost.PassOver, "got")
	}
	for _, row := range []struct {
		parent    int
		pool, mac string
		want      foreignhost.Action
	}{
		{1, "v4", "a", foreignhost.Stop}, {1, "other", "a", foreignhost.Stop}, {1, "v4", "b", foreignhost.Quarantine}, {2, "v4", "a", foreignhost.PassOver}, {2, "other", "a", foreignhost.Quarantine},
	} {
		check.Equal(t, h.mustMeet(t, row.parent, row.pool, row.mac), row.want, "%+v: got", row)
	}
}

// Each ADD of many pods that wait meets the host once. That must not keep the others waiting.
func TestAddressesAreTriedAgainAfterTheInterval(t *testing.T) {
	h, c := hosts(map[string]int{"v4 a": 3})
	for range foreignhost.MaxConflicts {
		h.mustMeet(t, 1, "v4", "a")
	}
	for range 59 {
		c.SetTime(c.Now().Add(time.Second))
		check.Equal(t, h.mustMeet(t, 1, "v4", "a"), foreignhost.Stop, "got")
	}
	c.SetTime(c.Now().Add(time.Second))
	check.Equal(t, h.mustMeet(t, 1, "v4", "a"), foreignhost.PassOver, "got")
	c.SetTime(c.Now().Add(foreignhost.Interval))
	h.mustMeet(t, 1, "v4", "b")
	check.That(t, len(h.met) == 1, "a host that was met long ago is remembered: %v", h.met)
}

// The records of ADDs at the same time come too late for each other.
func TestADDsAtTheSameTimeQuarantineNoMore(t *testing.T) {
	h, _ := hosts(nil)
	var all sync.WaitGroup
	var mu sync.Mutex
	n := map[foreignhost.Action]int{}
	for range foreignhost.MaxConflicts + 5 {
		all.Go(func() {
			action, err := h.Meet(t.Context(), 1, "v4", "a")
			mu.Lock()
			defer mu.Unlock()
			n[action]++
			check.Is(t, err, nil, "got")
		})
	}
	all.Wait()
	check.That(t, n[foreignhost.Quarantine] == 3 && n[foreignhost.PassOver] == foreignhost.MaxConflicts-3 && n[foreignhost.Stop] == 5, "got %v", n)
}

func TestWithoutTheRecordsNothingIsDecided(t *testing.T) {
	h, _ := hosts(nil)
	h.Recorded = func(context.Context, string, string) (int, error) { return 0, errors.New("away") }
	check.That(t, check.Err(h.Meet(t.Context(), 1, "v4", "a")) != nil && len(h.met) == 0, "decided")
}

// apis and internal/foreignhost must not import one another, so each has the number.
func TestRecordsAndDecisionUseOneNumber(t *testing.T) {
	check.Equal(t, v1alpha1.ManyAddresses, foreignhost.ManyAddresses, "the addresses that are recorded for a MAC, and those that the decision counts:")
}
