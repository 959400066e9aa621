// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"fmt"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

func TestAddressesAreTakenAtAKnownRateAndThePoolsTakeTurns(t *testing.T) {
	turns, now := newTurns(), time.Now()
	for i := range takenAtOnce {
		check.That(t, turns.take("large", fmt.Sprint("large-", i), now), "lease %d waits, although few were taken", i)
	}
	const more = 3 * takenPerSecond
	for i := range more {
		check.That(t, !turns.take("large", fmt.Sprint("more-", i), now), "a lease is taken beyond the burst")
	}
	for i := range 10 {
		check.That(t, !turns.take("small", fmt.Sprint("small-", i), now), "a lease of another pool passes those that wait")
	}
	check.Equal(t, turns.size(), more+10, "leases that wait:")
	leases, next := turns.due(now)
	check.Equal(t, len(leases), 0, "leases whose turn has come at once:")
	check.Equal(t, next, turnPeriod, "the next turn comes in")

	// In a second, half of the turns are those of the small pool, until it has no more.
	leases, _ = turns.due(now.Add(time.Second))
	check.Equal(t, len(leases), takenPerSecond, "leases whose turn has come after a second:")
	small := 0
	for i, lease := range leases {
		if turns.take("small", lease, now) && lease == fmt.Sprint("small-", small) {
			small++
			check.That(t, i < 20, "lease %s waits behind the large pool: turn %d", lease, i)
		}
	}
	check.Equal(t, small, 10, "leases of the small pool whose turn has come:")

	turns.forget("more-599") // is gone meanwhile
	leases, next = turns.due(now.Add(time.Hour))
	check.Equal(t, len(leases), more-(takenPerSecond-10), "the rest:")
	check.Equal(t, next, 0, "nothing waits any more:")
	check.Equal(t, turns.size(), 0, "leases that wait:")
	check.Equal(t, len(turns.asked), len(leases)-1, "leases whose turn has come and which are not gone:")
}
