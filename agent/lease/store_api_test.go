// SPDX-License-Identifier: Apache-2.0

//go:build api

package lease

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

// world is a real API server, and stores of two nodes on it.
type world struct {
	client.Client
	n1, n1Rebooted, n2 *Store
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	check.OK(t, v1alpha1.AddToScheme(scheme))
	c := check.Value(client.New(controlplane.New(t).Admin(), client.Options{Scheme: scheme}))(t)
	store := func(node, session string) *Store {
		return NewStore(Options{Client: c, Reader: c, Node: node, Session: session, Clock: clock.RealClock{}})
	}
	return &world{c, store("n1", "node-1/boot-1"), store("n1", "node-1/boot-2"), store("n2", "node-2/boot-1")}
}

// wish asks for an address for pod shop/web-0.
func wish(addr, container string) Request {
	r := request(container)
	r.Addr = netip.MustParseAddr(addr)
	return r
}

func (w *world) create(t *testing.T, s *Store, addr, container string) *v1alpha1.IPLease {
	t.Helper()
	return check.Value(s.Create(t.Context(), wish(addr, container)))(t)
}

// edit changes a lease as somebody does who does not care whose it is.
func (w *world) edit(t *testing.T, name string, change func(*v1alpha1.IPLease)) *v1alpha1.IPLease {
	t.Helper()
	l := &v1alpha1.IPLease{}
	check.OK(t, w.Get(t.Context(), client.ObjectKey{Name: name}, l))
	change(l)
	check.OK(t, w.Update(t.Context(), l))
	return l
}

// quarantine does what the controller does.
func (w *world) quarantine(t *testing.T, l *v1alpha1.IPLease, verifier string) *v1alpha1.IPLease {
	t.Helper()
	return w.edit(t, l.Name, func(l *v1alpha1.IPLease) {
		l.Spec, _ = Quarantine(v1alpha1.ReasonPodGone, "")(l.Spec, Owner{Now: time.Now()})
		l.Spec.NodeName = verifier
	})
}

func annotate(l *v1alpha1.IPLease) { l.Annotations = map[string]string{"somebody": "was here"} }

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	check.Is(t, err, want, "%s: got", what)
}

func TestStoreOnARealAPIServer(t *testing.T) {
	w := newWorld(t)
	for name, test := range map[string]func(*testing.T){
		"the name is the lock":                                 w.testCreate,
		"tokens grow with every hand-over":                     w.testTokens,
		"delete is of one's own lease only":                    w.testDelete,
		"edits of others do not stop a write":                  w.testEdits,
		"a static address moves with its pod":                  w.testTakeOver,
		"a take-over whose answer was lost is found":           w.testTakeOverTwice,
		"an address in conflict is set aside, then freed":      w.testConflict,
		"a verifier that was replaced does not write":          w.testReplacedVerifier,
		"after a reboot only a verification frees (R8)":        w.testReboot,
		"leases are listed by pool and by pod, past any cache": w.testLists,
	} {
		t.Run(name, test)
	}
}

func (w *world) testCreate(t *testing.T) {
	l := w.create(t, w.n1, "10.0.1.1", "c1")
	check.That(t, l.Name == "10.0.1.1" && l.Spec.Session == "node-1/boot-1" && l.UID != "", "created %+v", l)
	check.Equal(t, w.create(t, w.n1, "10.0.1.1", "c1").UID, l.UID, "a retried create returns lease")
	for what, s := range map[string]*Store{"another node": w.n2, "an earlier boot": w.n1Rebooted} {
		_, err := s.Create(t.Context(), wish("10.0.1.1", "c1"))
		wantErr(t, what, err, ErrTaken)
	}
	_, err := w.n1.Create(t.Context(), wish("10.0.1.1", "c2"))
	wantErr(t, "another container", err, ErrTaken)
	taken := (*TakenError)(nil)
	check.That(t, errors.As(err, &taken) && taken.Lease.UID == l.UID, "%v does not hold the lease", err)
	check.Equal(t, w.create(t, w.n1, "fd00::1:5", "c1").Name, "fd00-0000-0000-0000-0000-0000-0001-0005", "IPv6 lease")
}

func (w *world) testTokens(t *testing.T) {
	l := w.create(t, w.n1, "10.0.2.1", "c1")
	tokens := []uint64{mustToken(t, l)}
	q := w.quarantine(t, l, "n2")
	tokens = append(tokens, mustToken(t, q))
	l = check.Value(w.n2.TakeOver(t.Context(), q, wish("10.0.2.1", "c2")))(t)
	tokens = append(tokens, mustToken(t, l))
	check.That(t, slices.IsSorted(tokens) && len(slices.Compact(tokens)) == 3, "tokens %v", tokens)
}

func mustToken(t *testing.T, l *v1alpha1.IPLease) uint64 {
	t.Helper()
	return check.Value(Token(l))(t)
}

func (w *world) testDelete(t *testing.T) {
	l := w.create(t, w.n1, "10.0.3.1", "c1")
	for range 2 {
		check.OK(t, w.n1.Delete(t.Context(), l))
	}
	// The name has another lease now.
	next := w.create(t, w.n2, "10.0.3.1", "c2")
	wantErr(t, "someone else's", w.n1.Delete(t.Context(), l), ErrNotMine)

	w.quarantine(t, next, "n1")
	wantErr(t, "quarantined meanwhile", w.n2.Delete(t.Context(), next), ErrNotMine)
	check.Value(w.n1.Get(t.Context(), l.Name))(t)
}

func (w *world) testEdits(t *testing.T) {
	l := w.create(t, w.n1, "10.0.4.1", "c1")
	w.edit(t, l.Name, annotate)
	noted, err := w.n1.Update(t.Context(), l, RecordConflict(stranger))
	check.Must(t, err == nil && noted.Spec.Conflict.Count == 1 && noted.Annotations["somebody"] != "",
		"record a conflict on an edited lease: %+v, %v", noted, err)
	if written, err := w.n1.Get(t.Context(), l.Name); err != nil || len(written.ManagedFields) > 0 {
		t.Errorf("the API server still tracks who writes which field: %v, %v", written.ManagedFields, err)
	}
	// l is older than both writes.
	check.Is(t, w.n1.Delete(t.Context(), l), nil, "delete an edited lease:")
	_, err = w.n1.Update(t.Context(), l, RecordConflict(stranger))
	wantErr(t, "update what is gone", err, ErrGone)
	_, err = w.n1.Get(t.Context(), l.Name)
	wantErr(t, "get what is gone", err, ErrGone)
}

func (w *world) testTakeOver(t *testing.T) {
	l := w.create(t, w.n1, "10.0.5.1", "c1")
	retained, err := w.n1.Update(t.Context(), l, Retain)
	check.OK(t, err)
	stranger := wish("10.0.5.1", "c9")
	stranger.Holder.Pod = "web-9"
	_, err = w.n2.TakeOver(t.Context(), retained, stranger)
	wantErr(t, "another pod's take-over", err, ErrIdentity)

	moved, err := w.n2.TakeOver(t.Context(), retained, wish("10.0.5.1", "c2"))
	check.Must(t, err == nil && moved.Spec.NodeName == "n2" && moved.Spec.Previous == nil && moved.UID == l.UID,
		"take over a Retained lease: %+v, %v", moved, err)
	back, err := w.n1.TakeOver(t.Context(), w.quarantine(t, moved, "n1"), wish("10.0.5.1", "c3"))
	check.Must(t, err == nil && back.Spec.Previous != nil && back.Spec.Previous.Node == "n2",
		"take over a Quarantined lease: %+v, %v", back, err)
	waiting, err := w.n1.Update(t.Context(), back, Unverified("deaf"))
	check.Must(t, err == nil && waiting.Spec.State == v1alpha1.StateQuarantined && waiting.Spec.Previous.Node == "n2",
		"without proof: %+v, %v", waiting, err)
	again := check.Value(w.n1.TakeOver(t.Context(), waiting, wish("10.0.5.1", "c4")))(t)
	done, err := w.n1.Update(t.Context(), again, Confirm)
	check.That(t, err == nil && done.Spec.Previous == nil && done.Spec.State == v1alpha1.StateBound, "confirmed: %+v, %v", done, err)
}

func (w *world) testTakeOverTwice(t *testing.T) {
	retained := check.Value(w.n1.Update(t.Context(), w.create(t, w.n1, "10.0.6.1", "c1"), Retain))(t)
	first := check.Value(w.n2.TakeOver(t.Context(), retained, wish("10.0.6.1", "c2")))(t)
	second, err := w.n2.TakeOver(t.Context(), retained, wish("10.0.6.1", "c2"))
	check.That(t, err == nil && second.ResourceVersion == first.ResourceVersion, "got %v, %v", second, err)
	_, err = w.n1.TakeOver(t.Context(), retained, wish("10.0.6.1", "c3"))
	wantErr(t, "the slower of two nodes", err, ErrNotMine)
}

func (w *world) testConflict(t *testing.T) {
	l := w.create(t, w.n1, "10.0.7.1", "c1")
	aside, err := w.n1.Update(t.Context(), l, QuarantineConflict(stranger))
	check.Must(t, err == nil && aside.Spec.Holder == nil && aside.Spec.NodeName == "n1", "set aside: %+v, %v", aside, err)
	_, err = w.n2.Create(t.Context(), wish("10.0.7.1", "c2"))
	wantErr(t, "an address set aside", err, ErrTaken)

	aside, err = w.n1.Settle(t.Context(), aside, FindingAnswered, stranger)
	check.Must(t, err == nil && aside.Spec.Conflict.Count == 2, "answered again: %+v, %v", aside, err)
	l, err = w.n1.Settle(t.Context(), aside, FindingSafe, Evidence{})
	check.Must(t, err == nil && l == nil, "silent: %+v, %v", l, err)
	w.create(t, w.n2, "10.0.7.1", "c2")
}

func (w *world) testReplacedVerifier(t *testing.T) {
	q := w.quarantine(t, w.create(t, w.n1, "10.0.8.1", "c1"), "n1")
	w.edit(t, q.Name, func(l *v1alpha1.IPLease) { l.Spec.NodeName = "n2" })
	for what, finding := range map[string]Finding{"safe": FindingSafe, "answered": FindingAnswered, "unknown": FindingUnknown} {
		_, err := w.n1.Settle(t.Context(), q, finding, Evidence{})
		wantErr(t, what, err, ErrNotMine)
	}
}

func (w *world) testReboot(t *testing.T) {
	rebound, err := w.n1Rebooted.TakeOver(t.Context(), w.create(t, w.n1, "10.0.9.1", "c1"), wish("10.0.9.1", "c2"))
	check.That(t, err == nil && rebound.Spec.Previous != nil && NeedsVerification(&rebound.Spec, "node-1/boot-2"), "got %+v, %v", rebound, err)
}

func (w *world) testLists(t *testing.T) {
	for addr, pool := range map[string]string{"10.0.10.1": "p", "10.0.10.2": "p", "fd00::a": "p", "10.0.10.3": "q"} {
		r := wish(addr, "c1")
		r.Pool, r.Network = pool, "red"
		r.Holder.Namespace, r.Holder.Pod = "lists", "pod-"+pool
		check.OK(t, check.Err(w.n1.Create(t.Context(), r)))
	}
	taken := check.Value(w.n2.TakenIn(t.Context(), "p"))(t)
	want := []netip.Addr{netip.MustParseAddr("10.0.10.1"), netip.MustParseAddr("10.0.10.2"), netip.MustParseAddr("fd00::a")}
	check.List(t, slices.SortedFunc(maps.Keys(taken), netip.Addr.Compare), want, "leases of pool p:")
	own, err := w.n2.OfIdentity(t.Context(), &v1alpha1.Holder{Namespace: "lists", Pod: "pod-q"})
	check.That(t, err == nil && len(own) == 1 && own[0].Spec.Address == "10.0.10.3", "leases of pod-q: %v, %v", own, err)
}

func TestComingFreeCountsOnePoolsWarmAndQuarantinedLeases(t *testing.T) {
	w := newWorld(t)
	for addr, lease := range map[string]struct {
		pool  string
		state v1alpha1.LeaseState
	}{
		"10.0.20.1": {"full", v1alpha1.StateBound},
		"10.0.20.2": {"full", v1alpha1.StateWarm},
		"10.0.20.3": {"full", v1alpha1.StateQuarantined},
		"10.0.20.4": {"full", v1alpha1.StateRetained},
		"10.0.20.5": {"other", v1alpha1.StateWarm},
	} {
		r := wish(addr, "c1")
		r.Pool, r.Holder.OwnerKind = lease.pool, "ReplicaSet"
		l := check.Value(w.n1.Create(t.Context(), r))(t)
		w.edit(t, l.Name, func(l *v1alpha1.IPLease) {
			l.Spec.State = lease.state
			switch lease.state {
			case v1alpha1.StateWarm:
				l.Spec.Holder = nil
			case v1alpha1.StateQuarantined:
				l.Spec.Reason = v1alpha1.ReasonPodGone
			}
		})
	}
	for pool, want := range map[string]int{"full": 2, "other": 1, "empty": 0} {
		got, err := w.n2.ComingFree(t.Context(), pool)
		check.That(t, err == nil && got == want, "pool %s: %d, %v, want %d", pool, got, err, want)
	}
}
