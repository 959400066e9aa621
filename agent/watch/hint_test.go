// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// hintRig is an agent's Hints on node n1 with an API server in memory, whose controller is the test.
type hintRig struct {
	*testing.T
	client.WithWatch
	hints    *Hints
	clock    *clocktesting.FakePassiveClock
	journal  []string
	waits    []v1alpha1.PoolWait
	released []v1alpha1.LeaseVersion
	heard    *v1alpha1.LeaseHint

	mu    sync.Mutex
	gets  []string
	lists int
	fail  error
}

func newHintRig(t *testing.T, leases ...client.Object) *hintRig {
	r := &hintRig{T: t, clock: clocktesting.NewFakePassiveClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))}
	r.WithWatch = fake.NewClientBuilder().WithScheme(check.Value(Scheme())(t)).WithStatusSubresource(&v1alpha1.LeaseHint{}).
		WithIndex(&v1alpha1.IPLease{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*v1alpha1.IPLease).Spec.NodeName} }).
		WithObjects(append(leases, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-1"}})...).
		Build()
	counted := interceptor.NewClient(r.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*v1alpha1.IPLease); ok {
				r.mu.Lock()
				defer r.mu.Unlock()
				if r.fail != nil {
					return r.fail
				}
				r.gets = append(r.gets, key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			r.lists++
			return c.List(ctx, list, opts...)
		},
	})
	view := lease.NewView("n1")
	r.hints = NewHints(HintOptions{
		Node: "n1", Client: r.WithWatch, Live: counted, View: view,
		Leases:  lease.NewStore(lease.Options{Client: r.WithWatch, Reader: counted, View: view, Node: "n1", Session: "node-1/boot-1", Clock: clock.RealClock{}}),
		Journal: func() []string { return r.journal },
		Waits:   func() []v1alpha1.PoolWait { return r.waits }, Hear: func(h *v1alpha1.LeaseHint) { r.heard = h },
		Release: func(_ context.Context, wanted []v1alpha1.LeaseVersion) error { r.released = wanted; return nil }, Rand: func() float64 { return 0.5 }, Clock: r.clock, Log: logr.Discard(),
	})
	return r
}

// look lets the agent look at the hint until it has nothing to do at once. It returns the pause that follows.
func (r *hintRig) look() time.Duration {
	r.Helper()
	for {
		result, err := r.hints.Reconcile(r.Context(), r.hints.request())
		check.OK(r, err)
		if result.RequeueAfter > time.Millisecond {
			return result.RequeueAfter
		}
	}
}

// wants checks the reads by name since the last call, and the lists.
func (r *hintRig) wants(what string, lists int, names ...string) {
	r.Helper()
	slices.Sort(r.gets)
	check.List(r, r.gets, names, "%s: it reads", what)
	check.Equal(r, r.lists, lists, "%s: lists", what)
	r.gets, r.lists = nil, 0
}

func (r *hintRig) has(what string, names ...string) {
	r.Helper()
	all, err := r.hints.View.All()
	check.OK(r, err)
	var got []string
	for _, l := range all {
		got = append(got, l.Name)
	}
	check.List(r, got, names, "%s: it knows", what)
}

func (r *hintRig) hint() *v1alpha1.LeaseHint {
	r.Helper()
	h := &v1alpha1.LeaseHint{}
	check.OK(r, r.WithWatch.Get(r.Context(), client.ObjectKey{Name: "n1"}, h))
	return h
}

// answers does what the controller does: with no leases it answers the present question.
func (r *hintRig) answers(status v1alpha1.LeaseHintStatus) {
	r.Helper()
	h := r.hint()
	h.Status = status
	if h.Status.Start == "" {
		h.Status.Start = h.Spec.Start
	}
	check.OK(r, r.WithWatch.Status().Update(r.Context(), h))
}

func ofN1(name string) *v1alpha1.IPLease {
	return &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPLeaseSpec{State: v1alpha1.StateBound, NodeName: "n1"}}
}

// versions are those that the leases have now.
func (r *hintRig) versions(names ...string) (list []v1alpha1.LeaseVersion) {
	r.Helper()
	for _, name := range names {
		l := &v1alpha1.IPLease{}
		check.OK(r, r.WithWatch.Get(r.Context(), client.ObjectKey{Name: name}, l))
		list = append(list, v1alpha1.LeaseVersion{Name: name, Version: l.ResourceVersion})
	}
	return list
}

// others writes a lease as another does.
func (r *hintRig) others(name string, change func(*v1alpha1.IPLease)) {
	r.Helper()
	l := &v1alpha1.IPLease{}
	check.OK(r, r.WithWatch.Get(r.Context(), client.ObjectKey{Name: name}, l))
	change(l)
	check.OK(r, r.WithWatch.Update(r.Context(), l))
}

func (r *hintRig) unknown(what string) {
	r.Helper()
	_, err := r.hints.View.All()
	check.That(r, lease.IsUnavailable(err), "%s: the leases are known: %v", what, err)
}

func TestAnAgentStartsWithTheAnswerAndTheJournal(t *testing.T) {
	r := newHintRig(t, ofN1("a"), ofN1("b"), ofN1("unseen"))
	r.journal = []string{"unseen", "gone"}
	check.Equal(t, r.look(), patience, "it waits")
	h := r.hint()
	check.That(t, h.Spec.Start != "" && len(h.OwnerReferences) == 1 && h.OwnerReferences[0].UID == "node-1", "the question is %+v", h)
	r.unknown("before the answer")
	r.answers(v1alpha1.LeaseHintStatus{Start: "of another agent"})
	r.look()
	r.unknown("after an answer to another")
	r.answers(v1alpha1.LeaseHintStatus{Leases: r.versions("a", "b")})
	check.Equal(t, r.look(), askEvery, "then it waits")
	r.wants("start", 0, "a", "b", "gone", "unseen")
	r.has("start", "a", "b", "unseen")
	r.look()
	r.wants("nothing has changed", 0)
}

func TestAnAgentWithoutAControllerListsItsLeases(t *testing.T) {
	r := newHintRig(t, ofN1("a"), &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1alpha1.IPLeaseSpec{NodeName: "n2"}})
	r.look()
	r.clock.SetTime(r.clock.Now().Add(patience - time.Second))
	r.look()
	r.wants("in its patience", 0)
	r.unknown("in its patience")
	r.clock.SetTime(r.clock.Now().Add(time.Second))
	check.Equal(t, r.look(), listEvery, "then it waits")
	r.wants("after it", 1)
	r.has("after it", "a")

	// The controller of a previous release never answers.
	r.others("a", func(l *v1alpha1.IPLease) { l.Spec.State = v1alpha1.StateQuarantined })
	check.OK(t, r.Create(t.Context(), ofN1("c")))
	r.clock.SetTime(r.clock.Now().Add(listEvery))
	r.look()
	r.wants("a later list", 1)
	r.has("a later list", "a", "c")
	check.Equal(t, check.Value(r.hints.View.Get("a"))(t).Spec.State, v1alpha1.StateQuarantined, "a later list finds")
	check.OK(t, r.Delete(t.Context(), ofN1("c")))
	r.clock.SetTime(r.clock.Now().Add(listEvery))
	r.look()
	r.wants("a lease that a list lacks is read", 1, "c")
	r.has("the last list", "a")

	r.answers(v1alpha1.LeaseHintStatus{Leases: r.versions("a")})
	r.clock.SetTime(r.clock.Now().Add(askEvery - time.Second))
	r.look()
	r.wants("with a controller again", 0)
}

func TestAnAgentListsMoreLeasesThanAHintNames(t *testing.T) {
	var all []client.Object
	var names []string
	for i := range v1alpha1.MaxHintLeases + 1 {
		names = append(names, v1alpha1.LeaseName("", netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})))
		all = append(all, ofN1(names[i]))
	}
	slices.Sort(names)
	r := newHintRig(t, all...)
	r.look()
	r.answers(v1alpha1.LeaseHintStatus{All: true})
	check.Equal(t, r.look(), askEvery, "then it waits")
	r.wants("start", 1)
	r.has("start", names...)
}

// started is an agent whose view is filled.
func started(t *testing.T, leases ...string) *hintRig {
	var all []client.Object
	for _, name := range leases {
		all = append(all, ofN1(name))
	}
	r := newHintRig(t, all...)
	r.look()
	r.answers(v1alpha1.LeaseHintStatus{Leases: r.versions(leases...)})
	r.look()
	r.wants("start", 0, leases...)
	return r
}

func TestAnAgentReadsWhatTheHintNames(t *testing.T) {
	r := started(t, "a", "b", "c")
	quarantine := func(l *v1alpha1.IPLease) { l.Spec.State = v1alpha1.StateQuarantined }
	r.others("a", quarantine)
	r.answers(v1alpha1.LeaseHintStatus{Changed: r.versions("a")})
	r.look()
	r.wants("a quarantine", 0, "a")
	check.Equal(t, check.Value(r.hints.View.Get("a"))(t).Spec.State, v1alpha1.StateQuarantined, "it knows")
	r.look()
	r.wants("the same hint again", 0)

	l := check.Value(r.hints.View.Get("b"))(t)
	check.Value(r.hints.Leases.Update(t.Context(), l, func(s v1alpha1.IPLeaseSpec, _ lease.Owner) (v1alpha1.IPLeaseSpec, error) {
		s.State = v1alpha1.StateQuarantined
		return s, nil
	}))(t)
	r.answers(v1alpha1.LeaseHintStatus{Changed: r.versions("a", "b")})
	r.look()
	r.wants("its own quarantine", 0)

	check.OK(t, r.Delete(t.Context(), ofN1("a")))
	r.answers(v1alpha1.LeaseHintStatus{Changed: r.versions("b")})
	r.look()
	r.wants("a name that vanishes", 0, "a")
	r.has("a name that vanishes", "b", "c")

	left := r.versions("c")
	check.OK(t, r.Delete(t.Context(), ofN1("c")))
	r.answers(v1alpha1.LeaseHintStatus{Changed: r.versions("b"), Left: left})
	r.look()
	r.wants("a lease that left, with its last version", 0, "c")
	r.has("a lease that left", "b")
	r.answers(v1alpha1.LeaseHintStatus{Left: left})
	r.look()
	r.wants("it is read once", 0, "b")
}

// TestANewLeaderIsAsked: nobody has seen the changes before it.
func TestANewLeaderIsAsked(t *testing.T) {
	r := newHintRig(t, ofN1("a"), ofN1("b"))
	r.look()
	r.clock.SetTime(r.clock.Now().Add(time.Second))
	check.Equal(t, r.hints.Unanswered(), time.Second, "before the answer")
	r.answers(v1alpha1.LeaseHintStatus{Leader: "one", Leases: r.versions("a", "b")})
	check.Equal(t, r.look(), askEvery-time.Second, "the answer of the first one: it waits")
	check.Equal(t, r.hints.Unanswered(), 0, "after the answer")
	r.wants("the answer", 0, "a", "b")
	check.OK(t, r.Delete(t.Context(), ofN1("b")))
	r.answers(v1alpha1.LeaseHintStatus{Leader: "two"})
	check.Equal(t, r.look(), spread/2, "a new one: it waits")
	r.clock.SetTime(r.clock.Now().Add(spread / 2))
	before := r.hint().Spec.Start
	r.look()
	check.That(t, r.hint().Spec.Start != before, "there is no new question")
	r.answers(v1alpha1.LeaseHintStatus{Leader: "two", Leases: r.versions("a")})
	check.Equal(t, r.look(), askEvery, "its answer: it waits")
	r.has("its answer", "a")
}

// TestALostHintIsFound: the next question shows what no hint told.
func TestALostHintIsFound(t *testing.T) {
	r := started(t, "a", "b")
	r.others("a", func(l *v1alpha1.IPLease) { l.Spec.NodeName = "n2" })
	check.OK(t, r.Create(t.Context(), ofN1("c"))) // a write whose answer was lost took effect late
	r.look()
	r.wants("no hint", 0)
	r.clock.SetTime(r.clock.Now().Add(askEvery))
	before := r.hint().Spec.Start
	check.Equal(t, r.look(), listEvery, "a question that is not answered soon: it waits")
	check.That(t, r.hint().Spec.Start != before, "there is no new question")
	r.answers(v1alpha1.LeaseHintStatus{Leases: r.versions("b", "c")})
	r.look()
	r.wants("the next answer", 0, "a", "c")
	r.has("the next answer", "b", "c")
}

// TestAStoreThatWasRestoredIsReadAgain: its leases may have older versions than the known ones, and some are lost.
func TestAStoreThatWasRestoredIsReadAgain(t *testing.T) {
	r := started(t, "a", "b", "c")
	later := check.Value(r.hints.View.Get("a"))(t)
	later.ResourceVersion, later.Spec.State = "5000", v1alpha1.StateQuarantined
	r.hints.View.Saw(later)
	check.OK(t, r.Delete(t.Context(), ofN1("b")))
	before := r.hint().Spec.Start
	r.hints.Doubt()
	check.Equal(t, r.look(), journalFirst, "recovery reads first; it waits")
	check.Equal(t, r.hint().Spec.Start, before, "the question before that time is")
	r.hints.View.Saw(check.Value(r.hints.Leases.Get(t.Context(), "c"))(t)) // recovery
	r.clock.SetTime(r.clock.Now().Add(journalFirst))
	r.look()
	check.That(t, r.hint().Spec.Start != before, "there is no new question")
	r.wants("before the answer", 0, "c")
	r.answers(v1alpha1.LeaseHintStatus{Leases: r.versions("a", "c")})
	r.look()
	r.wants("the next answer", 0, "a", "b")
	r.has("the next answer", "a", "c")
	check.Equal(t, check.Value(r.hints.View.Get("a"))(t).Spec.State, v1alpha1.StateBound, "the restored lease is")
	r.look()
	r.wants("then", 0)
}

// TestALeaseThatLeftUnseenIsRead: the controller names it with the version that it saw last.
func TestALeaseThatLeftUnseenIsRead(t *testing.T) {
	r := started(t, "a")
	left := r.versions("a")
	check.Value(r.hints.Leases.Update(t.Context(), check.Value(r.hints.View.Get("a"))(t), func(s v1alpha1.IPLeaseSpec, _ lease.Owner) (v1alpha1.IPLeaseSpec, error) {
		return s, nil
	}))(t)
	check.OK(t, r.Delete(t.Context(), ofN1("a")))
	r.answers(v1alpha1.LeaseHintStatus{Left: left})
	r.look()
	r.wants("the hint", 0, "a")
	r.has("the hint")
}

func TestAHintThatMayHaveForgottenLeasesIsNotTrusted(t *testing.T) {
	r := started(t, "a")
	full := func(first int) (list []v1alpha1.LeaseVersion) {
		for i := range v1alpha1.MaxHintLeft {
			list = append(list, v1alpha1.LeaseVersion{Name: fmt.Sprintf("left-%d", first+i), Version: "5000"})
		}
		return list
	}
	for _, c := range []struct {
		what string
		left []v1alpha1.LeaseVersion
		asks bool
	}{{"some that left", full(1)[1:], false}, {"one more", full(1)[1:], false}, {"all are new", full(1000), true}, {"the same", full(1000), false}} {
		before := r.hint().Spec.Start
		r.answers(v1alpha1.LeaseHintStatus{Left: c.left})
		r.look()
		check.Equal(t, r.hint().Spec.Start != before, c.asks, "%s: it asks again:", c.what)
	}
}

func TestAnAgentAsksAgainIfItsHintIsDeleted(t *testing.T) {
	r := started(t, "a")
	before := r.hint()
	check.OK(t, r.Delete(t.Context(), before))
	r.look()
	check.That(t, r.hint().Spec.Start != before.Spec.Start, "there is no new question")
}

// TestAReadThatFailsIsRepeated, before the view counts as filled.
func TestAReadThatFailsIsRepeated(t *testing.T) {
	r := newHintRig(t, ofN1("a"))
	r.look()
	r.fail = context.DeadlineExceeded
	r.answers(v1alpha1.LeaseHintStatus{Leases: r.versions("a")})
	check.Equal(t, r.look(), retryAfter, "while the API server is away it waits")
	r.unknown("after a failure")
	r.fail = errors.New("forbidden")
	_, err := r.hints.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "n1"}})
	check.Is(t, err, r.fail, "got")
	r.fail = nil
	r.look()
	r.has("at last", "a")
}

// TestWhatTheAgentAsksWhileADDsWait: each change of the waits, and again after a time, which bounds the trust in a
// controller that is away.
func TestWhatTheAgentAsksWhileADDsWait(t *testing.T) {
	r := started(t, "a")
	wait := func(pool string) v1alpha1.PoolWait {
		return v1alpha1.PoolWait{Pool: pool, Since: metav1.NewMicroTime(r.clock.Now().Truncate(time.Microsecond))}
	}
	last := r.hint()
	asks := func(what string, want bool, pools ...string) {
		t.Helper()
		h, got := r.hint(), []string(nil)
		for _, w := range h.Spec.Waits {
			got = append(got, w.Pool)
		}
		check.List(t, got, pools, "%s: it says that ADDs wait for", what)
		check.Equal(t, h.Spec.Round != last.Spec.Round, want, "%s: it asks", what)
		check.Equal(t, h.Spec.Start, last.Spec.Start, "%s: the question for leases", what)
		last = h
	}
	asks("nobody waits", false)
	r.waits = []v1alpha1.PoolWait{wait("lan")}
	const renewal = renewEvery * 5 / 4 // by the random number of the rig
	check.Equal(t, r.look(), renewal, "it asks again after")
	asks("an ADD waits", true, "lan")
	r.look()
	asks("nothing has changed", false, "lan")
	free := []v1alpha1.FreeAddress{{Pool: "lan", Address: "10.0.0.2", Version: "7"}}
	r.answers(v1alpha1.LeaseHintStatus{Round: last.Spec.Round, Free: free})
	r.look()
	asks("the controller tells", false, "lan")
	check.That(t, r.heard.Status.Round == last.Spec.Round && slices.Equal(r.heard.Status.Free, free), "heard %+v", r.heard)
	r.clock.SetTime(r.clock.Now().Add(renewal))
	check.Equal(t, r.look(), renewal, "then it asks again after")
	asks("later", true, "lan")
	r.waits = append(r.waits, wait("wan"))
	r.look()
	asks("another pool", true, "lan", "wan")
	// After a rollback, the CRD drops the addresses of a wish.
	r.waits = slices.Clone(r.waits)
	r.waits[1].Addresses = []string{"10.0.0.2"}
	r.look()
	asks("a wish", true, "lan", "wan")
	dropped := r.hint()
	dropped.Spec.Waits[1].Addresses = nil
	check.OK(t, r.WithWatch.Update(t.Context(), dropped))
	r.look()
	asks("the addresses were dropped", false, "lan", "wan")
	check.OK(t, r.Delete(t.Context(), last))
	r.look()
	h := r.hint()
	check.That(t, len(h.Spec.Waits) == 2 && h.Spec.Start != last.Spec.Start, "after the hint was deleted it asks %+v", h.Spec)
	last = h
	r.waits = nil
	r.look()
	asks("nobody waits any longer", true)
	r.clock.SetTime(r.clock.Now().Add(renewal))
	r.look()
	asks("then", false)
}
