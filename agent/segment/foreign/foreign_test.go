// SPDX-License-Identifier: Apache-2.0

package foreign

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
func hosts(recorded map[string]int) (*Hosts, *clocktesting.FakePassiveClock) {
	c := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	return &Hosts{Clock: c, Recorded: func(_ context.Context, pool, mac string) (int, error) { return recorded[pool+" "+mac], nil }}, c
}

func (h *Hosts) mustMeet(t *testing.T, parent int, pool, mac string) foreignhost.Action {
	t.Helper()
	action := check.Value(h.Meet(t.Context(), parent, pool, mac))(t)
	return action
}

func TestEachHostOnEachParentHasItsOwnLimit(t *testing.T) {
	h, _ := hosts(map[string]int{"v4 a": 3})
	for range foreignhost.MaxConflicts {
		if got := h.mustMeet(t, 1, "v4", "a"); got != foreignhost.PassOver {
			t.Fatal(got)
		}
	}
	for _, row := range []struct {
		parent    int
		pool, mac string
		want      foreignhost.Action
	}{
		{1, "v4", "a", foreignhost.Stop}, {1, "other", "a", foreignhost.Stop}, {1, "v4", "b", foreignhost.Quarantine}, {2, "v4", "a", foreignhost.PassOver}, {2, "other", "a", foreignhost.Quarantine},
	} {
		if got := h.mustMeet(t, row.parent, row.pool, row.mac); got != row.want {
			t.Errorf("%+v: got %v", row, got)
		}
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
		if got := h.mustMeet(t, 1, "v4", "a"); got != foreignhost.Stop {
			t.Fatal(got)
		}
	}
	c.SetTime(c.Now().Add(time.Second))
	if got := h.mustMeet(t, 1, "v4", "a"); got != foreignhost.PassOver {
		t.Error(got)
	}
	c.SetTime(c.Now().Add(foreignhost.Interval))
	h.mustMeet(t, 1, "v4", "b")
	if len(h.met) != 1 {
		t.Errorf("a host that was met long ago is remembered: %v", h.met)
	}
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
			if n[action]++; err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n[foreignhost.Quarantine] != 3 || n[foreignhost.PassOver] != foreignhost.MaxConflicts-3 || n[foreignhost.Stop] != 5 {
		t.Errorf("got %v", n)
	}
}

func TestWithoutTheRecordsNothingIsDecided(t *testing.T) {
	h, _ := hosts(nil)
	h.Recorded = func(context.Context, string, string) (int, error) { return 0, errors.New("away") }
	if _, err := h.Meet(t.Context(), 1, "v4", "a"); err == nil || len(h.met) > 0 {
		t.Error("decided")
	}
}

// apis and internal/foreignhost must not import one another, so each has the number.
func TestRecordsAndDecisionUseOneNumber(t *testing.T) {
	if v1alpha1.ManyAddresses != foreignhost.ManyAddresses {
		t.Errorf("%d addresses are recorded for a MAC, and the decision counts to %d", v1alpha1.ManyAddresses, foreignhost.ManyAddresses)
	}
}
