// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/internal/foreignhost"
)

// ForeignHosts bounds the effects of one foreign host that answers for many addresses, such as a
// proxy (proxy ARP, ND proxy). Without a bound, ADDs quarantine the whole pool for such a host.
//
// ForeignHosts remembers which hosts have answered on this node. Safe for concurrent use.
type ForeignHosts struct {
	// Recorded returns the number of addresses of a pool that are Quarantined for a MAC.
	Recorded func(ctx context.Context, pool, mac string) (int, error)
	Clock    clock.PassiveClock

	mu  sync.Mutex
	met map[foreignHost][]meeting
}

// foreignHost is a MAC on a parent.
type foreignHost struct {
	parent int
	mac    string
}

// meeting is one answer of a host.
type meeting struct {
	at time.Time
	// pool is set if the address was quarantined.
	pool string
}

// Meet returns the action for an address of a pool for which a host answers on the parent.
func (f *ForeignHosts) Meet(ctx context.Context, parent int, pool, mac string) (foreignhost.Action, error) {
	who := foreignHost{parent, mac}
	if action, known := f.known(who, pool); known {
		return action, nil
	}
	recorded, err := f.Recorded(ctx, pool, mac)
	if err != nil {
		return foreignhost.Stop, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.decide(who, pool, recorded), nil
}

// known decides without Recorded if the memory of this node is sufficient.
func (f *ForeignHosts) known(who foreignHost, pool string) (foreignhost.Action, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget()
	if foreignhost.Decide(f.quarantined(who, pool), len(f.met[who])) == foreignhost.Quarantine {
		return foreignhost.Quarantine, false
	}
	return f.decide(who, pool, 0), true
}

// decide decides and remembers. Concurrent calls do not see each other's records, so the addresses
// that this node has just quarantined count as well. A Stop is not remembered: otherwise a stream
// of ADDs would extend it for ever.
func (f *ForeignHosts) decide(who foreignHost, pool string, recorded int) foreignhost.Action {
	if f.met == nil {
		f.met = map[foreignHost][]meeting{}
	}
	action := foreignhost.Decide(max(recorded, f.quarantined(who, pool)), len(f.met[who]))
	switch action {
	case foreignhost.Quarantine:
		f.met[who] = append(f.met[who], meeting{f.Clock.Now(), pool})
	case foreignhost.PassOver:
		f.met[who] = append(f.met[who], meeting{at: f.Clock.Now()})
	}
	return action
}

// quarantined returns the number of addresses of a pool that this node has quarantined for a host.
func (f *ForeignHosts) quarantined(who foreignHost, pool string) (n int) {
	for _, m := range f.met[who] {
		if m.pool == pool {
			n++
		}
	}
	return n
}

// forget removes the meetings that are older than foreignhost.Interval.
func (f *ForeignHosts) forget() {
	for who, all := range f.met {
		all = slices.DeleteFunc(all, func(m meeting) bool { return f.Clock.Since(m.at) >= foreignhost.Interval })
		if f.met[who] = all; len(all) == 0 {
			delete(f.met, who)
		}
	}
}
