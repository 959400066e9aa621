// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"reflect"
	"time"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/internal/foreignhost"
)

// pause is the time in which no lease is created for a pair.
type pause struct {
	until time.Time
	// params of the pool at the beginning. The pause ends when they change, since ignoreMACs may name
	// the host now.
	params segment.ProbeParams
}

// pause stops the creation of leases for a pair for foreignhost.Interval. Otherwise a host that answers
// for each address would make the keeper create and release leases without end.
func (k *Keeper) pause(p Pair, params segment.ProbeParams) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.paused[p] = pause{k.Clock.Now().Add(foreignhost.Interval), params}
}

// isPaused reports whether no lease may be created for a pair whose pool has these parameters.
func (k *Keeper) isPaused(p Pair, params segment.ProbeParams) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, ok := k.paused[p]
	if !ok {
		return false
	}
	if k.Clock.Now().Before(now.until) && reflect.DeepEqual(now.params, params) {
		return true
	}
	delete(k.paused, p)
	return false
}
