// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// get allocates and returns the address, or the error's text.
func get(t *testing.T, a *Allocator, w trial) string {
	t.Helper()
	l, pool, err := onDemand(t.Context(), a, w)
	if err != nil {
		return err.Error()
	}
	check.That(t, l.Spec.Pool == pool.Name, "lease of pool %s, returned with pool %s", l.Spec.Pool, pool.Name)
	return l.Spec.Address
}

// conflicts makes try find somebody else on some addresses.
func conflicts(w *trial, addrs ...string) {
	w.try = func(l *v1alpha1.IPLease) (bool, error) { return slices.Contains(addrs, l.Spec.Address), nil }
}

func TestAddressesRotate(t *testing.T) {
	m := newMemory("a")
	a := agent(m, map[string]netip.Addr{"a": netip.MustParseAddr("10.0.0.2")})
	w := wishFor(candidate(t, "a", nil, "10.0.0.1-10.0.0.4"))
	for _, want := range []string{"10.0.0.3", "10.0.0.4", "10.0.0.1"} {
		check.Equal(t, get(t, a, w), want, "got")
	}
	check.Equal(t, a.Last()["a"].String(), "10.0.0.1", "the rotation stands at")
	check.That(t, m.creates == 3 && m.lists == 0, "%d creates and %d lists for 3 addresses", m.creates, m.lists)
}

func TestTheLeaseIsOfThePoolAndItsNetwork(t *testing.T) {
	var got lease.Request
	rec := recorder{newMemory("a"), &got}
	w := wishFor(candidate(t, "a", nil, "10.0.0.1"))
	kept := map[string]*v1alpha1.LeaseRetention{"a": {Policy: v1alpha1.RetainForever}, "b": {Policy: v1alpha1.RetainNone}}
	w.Parent, w.Retention = "ens1", func(p *v1alpha1.IPPool) *v1alpha1.LeaseRetention { return kept[p.Name] }
	get(t, agent(rec, nil), w)
	check.That(t, got.Pool == "a" && got.Network == "red" && got.Addr.String() == "10.0.0.1" && got.Parent == "ens1" &&
		got.Holder == w.Holder && got.Retention == kept["a"], "requested %+v", got)
}

type recorder struct {
	*memory
	last *lease.Request
}

func (r recorder) Create(ctx context.Context, q lease.Request) (*v1alpha1.IPLease, error) {
	*r.last = q
	return r.memory.Create(ctx, q)
}

func TestAnAddressInConflictIsFollowedByTheNext(t *testing.T) {
	w := wishFor(candidate(t, "a", nil, "10.0.0.1-10.0.0.9"))
	conflicts(&w, "10.0.0.3", "10.0.0.4")
	a := agent(newMemory("a"), map[string]netip.Addr{"a": netip.MustParseAddr("10.0.0.2")})
	check.Equal(t, get(t, a, w), "10.0.0.5", "got")
}

func TestAnAddressInConflictIsTriedOnce(t *testing.T) {
	m := newMemory("a")
	w := wishFor(candidate(t, "a", nil, "10.0.0.1-10.0.0.2"))
	tries := map[string]int{}
	w.try = func(l *v1alpha1.IPLease) (bool, error) {
		tries[l.Spec.Address]++
		// Its quarantine may end while the search goes on.
		m.free(netip.MustParseAddr(l.Spec.Address))
		return true, nil
	}
	check.Equal(t, get(t, agent(m, nil), w), "no IPv4 address for pod shop/web-0 interface eth0 from the pools of the CNI configuration: "+
		"pool a: it is exhausted, 0 of its 2 addresses have a lease, 2 are used by other hosts", "got")
	check.Same(t, tries, map[string]int{"10.0.0.1": 1, "10.0.0.2": 1}, "tries")
}

func TestThePrimaryPoolGoesBeforeTheBackup(t *testing.T) {
	m := newMemory("a", "10.0.0.1")
	w := wishFor(candidate(t, "a", []string{"10.0.0.1"}, "10.0.0.1-10.0.0.2"), candidate(t, "b", nil, "10.0.0.9"))
	a := agent(m, nil)
	for _, want := range []string{"10.0.0.2", "10.0.0.9"} {
		check.Equal(t, get(t, a, w), want, "got")
	}
	check.That(t, m.lists == 0, "%d lists although the backup could serve", m.lists)
}

func TestStaleHintsEndInAList(t *testing.T) {
	m := newMemory("a")
	for n := 1; n < 250; n++ {
		m.lease("a", fmt.Sprintf("10.0.0.%d", n))
	}
	w := wishFor(candidate(t, "a", nil, "10.0.0.1-10.0.0.250"), candidate(t, "b", nil, "10.0.0.251"))
	a := agent(m, map[string]netip.Addr{"a": netip.MustParseAddr("10.0.0.1")})
	check.Equal(t, get(t, a, w), "10.0.0.250", "got")
	check.That(t, m.lists == 1 && m.creates <= maxCollisions+1, "%d lists, %d creates", m.lists, m.creates)
}

// An ADD has time for six creates of 3 s.
func TestWithASlowAPIServerOneCollisionMakesHintsStale(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	m := newMemory("a")
	for n := 1; n < 250; n++ {
		m.lease("a", fmt.Sprintf("10.0.0.%d", n))
	}
	m.onCreate = func(netip.Addr) error {
		now.SetTime(now.Now().Add(3 * time.Second))
		return nil
	}
	a := New(Options{Leases: m, Clock: now})
	check.Equal(t, get(t, a, wishFor(candidate(t, "a", nil, "10.0.0.1-10.0.0.250"))), "10.0.0.250", "got")
	check.That(t, m.lists == 1 && m.creates <= 2, "%d lists, %d creates", m.lists, m.creates)
}

func TestABitmapThatCannotBeReadHintsAtNothing(t *testing.T) {
	c := candidate(t, "a", nil, "10.0.0.1")
	c.Pool.Status.InUse = "?"
	check.Equal(t, get(t, agent(newMemory("a"), nil), wishFor(c)), "10.0.0.1", "got")
}

func TestExhaustedSaysWhatOfEachPool(t *testing.T) {
	m := newMemory("a", "10.0.0.1", "10.0.0.200")
	m.lease("overlapping", "10.0.0.2")
	m.lease("b", "10.0.0.9")
	w := wishFor(candidate(t, "a", nil, "10.0.0.1-10.0.0.5"), candidate(t, "b", nil, "10.0.0.9"))
	w.Family.Rejected = []ipam.Rejection{{Pool: "c", Reason: ipam.Disabled, Detail: "it is disabled"}}
	w.Sighted = func(_ *v1alpha1.IPPool, a netip.Addr) bool { return a.String() == "10.0.0.4" }
	conflicts(&w, "10.0.0.3", "10.0.0.5")

	check.Equal(t, get(t, agent(m, nil), w),
		"no IPv4 address for pod shop/web-0 interface eth0 from the pools of the CNI configuration: pool c: it is disabled; "+
			"pool a: it is exhausted, 4 of its 5 addresses have a lease, 1 are in use by hosts without a lease; "+
			"pool b: it is exhausted, 1 of its 1 addresses have a lease", "got")
}

func TestExhaustedIsNotSaidWhileOthersAreQuicker(t *testing.T) {
	m := newMemory("a", "10.0.0.1", "10.0.0.2")
	// Between each list and the create that follows, another node takes what
	// was free and frees the other address.
	rounds := 0
	m.onCreate = func(addr netip.Addr) error {
		if rounds++; rounds > 6 {
			return nil
		}
		m.lease("a", addr.String())
		m.free(netip.MustParseAddr(map[string]string{"10.0.0.1": "10.0.0.2", "10.0.0.2": "10.0.0.1"}[addr.String()]))
		return nil
	}
	m.onList = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.leases) == 2 {
			delete(m.leases, nameOf(netip.MustParseAddr("10.0.0.2")))
		}
	}
	w := wishFor(candidate(t, "a", []string{"10.0.0.1", "10.0.0.2"}, "10.0.0.1-10.0.0.2"))
	l, _, err := onDemand(t.Context(), agent(m, nil), w)
	check.That(t, err == nil && rounds >= 6, "after %d rounds: %v, %v", rounds, l, err)
}

func TestARequestedAddress(t *testing.T) {
	requesting := func(addr string) trial {
		w := wishFor(candidate(t, "a", nil, "10.0.0.1-10.0.0.9"))
		w.Family.Requested = netip.MustParseAddr(addr)
		return w
	}
	a := agent(newMemory("a", "10.0.0.3"), nil)
	check.Equal(t, get(t, a, requesting("10.0.0.7")), "10.0.0.7", "got")
	_, _, err := onDemand(t.Context(), a, requesting("10.0.0.3"))
	taken, ok := errors.AsType[*lease.TakenError](err)
	check.That(t, ok && taken.Lease.Spec.Address == "10.0.0.3", "a taken address: %v", err)
	w := requesting("10.0.0.8")
	conflicts(&w, "10.0.0.8")
	check.Equal(t, get(t, a, w), "requested address 10.0.0.8 for pod shop/web-0 interface eth0: another host, or this node itself, answers for it", "got")
}

func TestOnlyTheNamedAddressesAreCandidates(t *testing.T) {
	a, w := agent(newMemory("a", "10.0.0.3"), nil), wishFor(candidate(t, "a", nil, "10.0.0.1-10.0.0.9"))
	w.Only = []netip.Addr{netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("10.0.0.5")}
	check.Equal(t, get(t, a, w), "10.0.0.5", "got")
	_, _, err := onDemand(t.Context(), a, w)
	check.That(t, isExhausted(err), "got %v", err)
	check.Says(t, err.Error(), "pool a: it is exhausted, others have 10.0.0.3, 10.0.0.5")
}

func TestErrorsEndTheSearch(t *testing.T) {
	broken := errors.New("broken")
	c := candidate(t, "a", nil, "10.0.0.1-10.0.0.9")
	for rule, arrange := range map[string]func(*memory, *trial){
		"of the API server": func(m *memory, _ *trial) { m.onCreate = func(netip.Addr) error { return broken } },
		"of the journal":    func(_ *memory, w *trial) { w.before = func() error { return broken } },
		"of the guard":      func(_ *memory, w *trial) { w.try = func(*v1alpha1.IPLease) (bool, error) { return false, broken } },
	} {
		t.Run(rule, func(t *testing.T) {
			m, w := newMemory("a"), wishFor(c)
			arrange(m, &w)
			_, _, err := onDemand(t.Context(), agent(m, nil), w)
			check.That(t, errors.Is(err, broken), "got %v", err)
			check.That(t, m.creates <= 1, "%d creates", m.creates)
		})
	}
}

func TestAnAddressWhoseCreateFailedIsNotRememberedAsLeased(t *testing.T) {
	m := newMemory("a")
	a := agent(m, nil)
	w := wishFor(candidate(t, "a", nil, "10.0.0.1"))
	m.onCreate = func(netip.Addr) error { return errors.New("the API server is away") }
	get(t, a, w)
	m.onCreate = nil
	got := get(t, a, w)
	check.That(t, got == "10.0.0.1" && m.lists == 0, "got %s after %d lists", got, m.lists)
}

func TestACallerThatLeftGetsNoLease(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := newMemory("a")
	_, _, err := onDemand(ctx, agent(m, nil), wishFor(candidate(t, "a", nil, "10.0.0.1")))
	check.That(t, errors.Is(err, context.Canceled) && m.creates == 0, "%v after %d creates", err, m.creates)
}

func TestACancelledSearchGivesItsProposalBack(t *testing.T) {
	m := newMemory("a")
	a := agent(m, map[string]netip.Addr{"a": netip.MustParseAddr("10.0.0.1")})
	w := wishFor(candidate(t, "a", nil, "10.0.0.1-10.0.0.2"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		_, _, err := onDemand(ctx, a, w)
		check.Must(t, errors.Is(err, context.Canceled), "the search ended with %v", err)
	}
	// Without a list: no address is left to a search that has ended.
	for range 2 {
		get(t, a, w)
	}
	check.That(t, m.creates == 2 && m.lists == 0, "%d creates and %d lists for 2 addresses after 2 cancelled searches", m.creates, m.lists)
}
