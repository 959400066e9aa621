// SPDX-License-Identifier: Apache-2.0

// Package foreign bounds the effects of one foreign host that answers for many addresses, such as a
// proxy (proxy ARP, ND proxy). Without a bound, ADDs quarantine the whole pool for such a host.
package foreign

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// The limits of RFC 5227 section 1.1.
const (
	// MaxConflicts is MAX_CONFLICTS: the number of addresses that are tried on a parent within
	// Interval although one host answers for them.
	MaxConflicts = 10
	// Interval is RATE_LIMIT_INTERVAL.
	Interval = 60 * time.Second
)

// Action is the treatment of a leased address for which a foreign host answers.
type Action int

// The actions.
const (
	// Quarantine the lease. The caller tries another address.
	Quarantine Action = iota
	// PassOver: end the lease, and try another address.
	PassOver
	// Stop: end the lease, and try no other address for now.
	Stop
)

// Decide returns the treatment of one more address for which a host answers. recorded is the number
// of addresses of the pool that are Quarantined for the MAC of the host, by any node. met is the
// number of addresses for which the host answered on the same parent of this node within Interval.
func Decide(recorded, met int) Action {
	switch {
	case met >= MaxConflicts:
		return Stop
	case recorded < v1alpha1.ManyAddresses:
		return Quarantine
	}
	return PassOver
}

// Hosts remembers which hosts have answered on this node. Safe for concurrent use.
type Hosts struct {
	// Recorded returns the number of addresses of a pool that are Quarantined for a MAC.
	Recorded func(ctx context.Context, pool, mac string) (int, error)
	Clock    clock.PassiveClock

	mu  sync.Mutex
	met map[host][]meeting
}

// host is a MAC on a parent.
type host struct {
	parent int
	mac    string
}

// meeting is one answer of a host.
type meeting struct {
	at time.Time
	// pool is set if the address was quarantined.
	pool string
}

// Meet returns the treatment of an address of a pool for which the host with the MAC answers on the
// parent. The caller carries it out.
func (h *Hosts) Meet(ctx context.Context, parent int, pool, mac string) (Action, error) {
	who := host{parent, mac}
	if action, known := h.known(who, pool); known {
		return action, nil
	}
	recorded, err := h.Recorded(ctx, pool, mac)
	if err != nil {
		return Stop, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.decide(who, pool, recorded), nil
}

// known decides if the memory of this node is sufficient.
func (h *Hosts) known(who host, pool string) (Action, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget()
	if Decide(h.quarantined(who, pool), len(h.met[who])) == Quarantine {
		return Quarantine, false
	}
	return h.decide(who, pool, 0), true
}

// decide decides and remembers. Calls at the same time do not see each other's records, so the
// addresses that this node has just quarantined count as well. A Stop is not remembered, so
// addresses are tried again after Interval, however many ADDs come meanwhile.
func (h *Hosts) decide(who host, pool string, recorded int) Action {
	if h.met == nil {
		h.met = map[host][]meeting{}
	}
	action := Decide(max(recorded, h.quarantined(who, pool)), len(h.met[who]))
	switch action {
	case Quarantine:
		h.met[who] = append(h.met[who], meeting{h.Clock.Now(), pool})
	case PassOver:
		h.met[who] = append(h.met[who], meeting{at: h.Clock.Now()})
	}
	return action
}

// quarantined returns the number of addresses of a pool that this node has quarantined for a host.
func (h *Hosts) quarantined(who host, pool string) (n int) {
	for _, m := range h.met[who] {
		if m.pool == pool {
			n++
		}
	}
	return n
}

// forget removes the meetings that are older than Interval.
func (h *Hosts) forget() {
	for who, all := range h.met {
		all = slices.DeleteFunc(all, func(m meeting) bool { return h.Clock.Since(m.at) >= Interval })
		if h.met[who] = all; len(all) == 0 {
			delete(h.met, who)
		}
	}
}
