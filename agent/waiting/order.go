// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// Longest is the longest wait of an ADD. The delay falls with the age of an ADD up to this age.
	Longest = 90 * time.Second
	// spreadEach is the part of the spread for each agent that may compete for an address, and
	// spreadMost bounds the spread. Few nodes are told of an address, so few agents try to create a
	// lease that another agent has created.
	spreadEach, spreadMost = 20 * time.Millisecond, 500 * time.Millisecond
)

// waiter is an ADD that waits, as far as the order depends on it.
type waiter struct {
	arrived time.Time
	rooms   []string
}

// vacancy is an address without a lease.
type vacancy struct {
	room string
	addr netip.Addr
	// since is the time from which the address may be offered.
	since time.Time
	// agents is the number of agents that may compete for the address.
	agents int
	// luck is a random number from 0 to 1 that each agent draws for itself.
	luck float64
}

// assign returns for each waiter the index of the vacancy that it gets now, or -1. The waiters are
// in the order of their arrival. Each waiter reserves the vacancy that is ready first, even if it
// is not ready yet, so a later waiter never overtakes it. next is the time at which the next
// reserved vacancy is ready. It is zero if there is none.
func assign(now time.Time, waiters []waiter, vacancies []vacancy) (gets []int, next time.Time) {
	gets = make([]int, len(waiters))
	kept := make([]bool, len(vacancies))
	for i, w := range waiters {
		gets[i] = -1
		best, ready := -1, time.Time{}
		for j, v := range vacancies {
			if kept[j] || !slices.Contains(w.rooms, v.room) {
				continue
			}
			if at := v.since.Add(delay(v.since.Sub(w.arrived), v)); best < 0 || at.Before(ready) {
				best, ready = j, at
			}
		}
		switch {
		case best < 0:
			continue
		case !ready.After(now):
			gets[i] = best
		case next.IsZero() || ready.Before(next):
			next = ready
		}
		kept[best] = true
	}
	return gets, next
}

// delay returns the time for which an agent leaves a vacancy to other agents. One half of the spread
// depends on the age of the waiter, so that older waiters of any node tend to be first. The other half
// is random, because the pods of one Deployment have the same age.
func delay(age time.Duration, v vacancy) time.Duration {
	if v.agents <= 1 {
		return 0
	}
	spread := float64(min(time.Duration(v.agents)*spreadEach, spreadMost))
	youth := 1 - float64(min(max(age, 0), Longest))/float64(Longest)
	return time.Duration(spread * (youth + v.luck) / 2)
}
