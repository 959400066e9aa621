// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/internal/poolset"
)

// memory is the memory of one leader. A new leader begins anew, and so waits longer.
type memory struct {
	// withdrawn has, for each excluded address of a pool, the time of the first look that saw it.
	withdrawn map[string]map[netip.Addr]time.Time
	// carving has, for each pool, the time of the first look that saw its entry of status.carving.
	carving map[string]seen
	// published has the time of the last write of a status.
	published map[string]time.Time
	// unpublished is true if counts wait for their time.
	unpublished bool
	// told has the message that an application was told last.
	told map[string]string
	// made are the pools of IPSubnets, for the events of leases.
	made atomic.Pointer[map[string]bool]
}

// seen is a value, and the time since which it has not changed.
type seen struct {
	value string
	since time.Time
}

// see notes the withdrawn addresses and the entries of status.carving.
func (m *memory) see(f Facts, now time.Time) {
	if m.published == nil {
		m.published, m.told = map[string]time.Time{}, map[string]string{}
	}
	withdrawn, made := map[string]map[netip.Addr]time.Time{}, map[string]bool{}
	for i := range f.Pools {
		pool := &f.Pools[i]
		if !isMade(*pool) {
			continue
		}
		made[pool.Name] = true
		excluded, err := poolset.Parse(pool.Spec.ExcludeIPs)
		if err != nil || excluded.Len() == 0 {
			continue
		}
		withdrawn[pool.Name] = map[netip.Addr]time.Time{}
		for n := range min(excluded.Len(), maxWithdrawn) {
			addr := excluded.At(n)
			since, ok := m.withdrawn[pool.Name][addr]
			if !ok {
				since = now
			}
			withdrawn[pool.Name][addr] = since
		}
	}
	m.withdrawn = withdrawn
	m.made.Store(&made)
	carving := map[string]seen{}
	for i := range f.Subnets {
		for _, c := range f.Subnets[i].Status.Carving {
			value := strings.Join(c.IPs, ",")
			old, ok := m.carving[c.Pool]
			if !ok || old.value != value {
				old = seen{value, now}
			}
			carving[c.Pool] = old
		}
	}
	m.carving = carving
}

// maxWithdrawn bounds the addresses of a pool that are given back at a time.
const maxWithdrawn = 4096

// settled returns the addresses that were withdrawn long enough ago, and the pools with an entry in
// status.carving that is old enough.
func (m *memory) settled(now time.Time, after time.Duration) (map[string]poolset.Set, map[string]bool) {
	settled, expired := map[string]poolset.Set{}, map[string]bool{}
	for pool, addresses := range m.withdrawn {
		var old []string
		for addr, since := range addresses {
			if now.Sub(since) >= after {
				old = append(old, addr.String())
			}
		}
		settled[pool], _ = poolset.Parse(old) // addresses can be read
	}
	for pool, s := range m.carving {
		if now.Sub(s.since) >= after {
			expired[pool] = true
		}
	}
	return settled, expired
}

// hasMade reports whether the controller made the pool of a lease.
func (m *memory) hasMade(lease *v1alpha1.IPLease) bool {
	made := m.made.Load()
	return made != nil && (*made)[lease.Spec.Pool]
}

// forget drops the IPSubnets that are gone.
func (m *memory) forget(p Plan, forgotten func(string)) {
	for name := range m.published {
		if p.Subnets[name] == nil {
			delete(m.published, name)
			forgotten(name)
		}
	}
}

const (
	// remembered is the time for which an answer about an owner is used, while its pods stay the same.
	remembered = 30 * time.Second
	// askAgain is the time after which a question that failed is asked again.
	askAgain = 10 * time.Second
	// longestAnswer bounds a question, because one pass serves all IPSubnets.
	longestAnswer = 5 * time.Second
)

// question asks for the number of pods that an owner wants. A change of the owner's pods makes
// another question, because its scale has probably changed before.
type question struct {
	ref owner.Ref
	// newest is the UID of its newest pod, pods the number of its pods.
	newest types.UID
	pods   int
}

type answer struct {
	replicas int
	err      error
	at       time.Time
}

// answers are the API server's, about owners of other projects. The zero value is empty.
type answers struct {
	known map[question]answer
	// silent are the kinds with a question that was not answered in time in this pass.
	silent map[schema.GroupKind]error
}

// begin forgets the answers that are too old for a pass.
func (a *answers) begin(now time.Time) {
	if a.known == nil {
		a.known = map[question]answer{}
	}
	a.silent = map[schema.GroupKind]error{}
	maps.DeleteFunc(a.known, func(_ question, is answer) bool {
		if isPassing(is.err) {
			return now.Sub(is.at) >= askAgain
		}
		return now.Sub(is.at) >= remembered
	})
}

// ask returns a known answer, or gets one.
func (a *answers) ask(ctx context.Context, q question, now time.Time, get func(context.Context, owner.Ref) (int, error)) (int, error) {
	if is, ok := a.known[q]; ok {
		return is.replicas, is.err
	}
	kind := q.ref.GroupKind()
	if err := a.silent[kind]; err != nil {
		a.known[q] = answer{0, err, now} // otherwise each owner of the kind would delay a pass
		return 0, err
	}
	bounded, cancel := context.WithTimeout(ctx, longestAnswer)
	defer cancel()
	n, err := get(bounded, q.ref)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil && bounded.Err() != nil {
		a.silent[kind] = err
	}
	a.known[q] = answer{n, err, now}
	return n, err
}

// isPassing reports whether an error about an owner may pass by itself.
func isPassing(err error) bool {
	return err != nil && !errors.Is(err, owner.ErrGone) && !isUncounted(err)
}
