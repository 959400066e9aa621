// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/controller/reclaim"
	"github.com/fenceline/fenceline/test/check"
)

const (
	// thief is the node of the stolen token, elsewhere another node, on which the victim's pod lives.
	thief, elsewhere = "n1", "n2"
	// sequences are tried for each first state, and each has calls writes.
	sequences, calls = 4, 6
	victimUID        = "7a3f1c2e-0000-4000-8000-000000000001"
)

// testStolenAgentToken tries sequences of writes by one stolen token from every state of a lease. No
// lease of a living holder elsewhere ends, no pod elsewhere dies, and nothing is free unproven.
func (e *env) testStolenAgentToken(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 14))
	token := e.agent(t, thief)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "default"},
		Spec:       corev1.PodSpec{NodeName: elsewhere, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	e.create(t, pod)
	accepted := 0
	for i, first := range firstStates() {
		for range sequences {
			s := &sequence{env: e, token: token, random: random, lease: first.DeepCopy()}
			s.begin(t)
			for range calls {
				s.call(t)
			}
			accepted += s.accepted
			if t.Failed() {
				s.end(t)
				t.Fatalf("first state %d:\n%s", i, s.story)
			}
			s.end(t)
		}
	}
	check.That(t, accepted >= 100, "only %d calls were accepted: the sequences try too little", accepted)
	err := token.Delete(t.Context(), pod)
	check.That(t, apierrors.IsForbidden(err), "the token deletes a pod elsewhere: %v", err)
}

// firstStates are all sensible leases of a pod that may live elsewhere.
func firstStates() []*v1alpha1.IPLease {
	var all []*v1alpha1.IPLease
	add := func(changes ...func(*v1alpha1.IPLease)) {
		l := bound("", "10.1.0.1", append([]func(*v1alpha1.IPLease){spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder.PodUID = victimUID })}, changes...)...)
		all = append(all, l)
	}
	ofDeployment := spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder.OwnerKind, s.Holder.OwnerName = "ReplicaSet", "web-5d" })
	from := func(node string) func(*v1alpha1.IPLease) {
		return spec(func(s *v1alpha1.IPLeaseSpec) {
			s.Previous = &v1alpha1.PreviousHolder{Node: node, PodUID: s.Holder.PodUID, MAC: s.Holder.MAC, Token: 7, Guarded: true}
		})
	}
	heard := spec(func(s *v1alpha1.IPLeaseSpec) {
		s.Reason, s.Conflict = v1alpha1.ReasonConflict, &v1alpha1.Conflict{MAC: "02:00:00:00:00:07", Source: "probe"}
	})
	same := func(*v1alpha1.IPLease) {}
	for _, owner := range []func(*v1alpha1.IPLease){same, ofDeployment} {
		for _, node := range []string{thief, elsewhere} {
			add(owner, on(node))
			add(owner, on(node), in(v1alpha1.StateRetained))
			add(owner, on(node), in(v1alpha1.StateRetained), because(v1alpha1.ReasonSandboxEnded))
			add(owner, on(node), in(v1alpha1.StateWarm), withoutHolder)
			add(owner, on(node), in(v1alpha1.StateQuarantined), heard, withoutHolder)
			for _, last := range []string{thief, elsewhere} {
				add(owner, on(node), from(last))
				add(owner, on(node), from(last), in(v1alpha1.StateQuarantined), because(v1alpha1.ReasonNodeUnreachable))
				add(owner, on(node), from(last), in(v1alpha1.StateQuarantined), heard)
				add(owner, on(node), from(last), in(v1alpha1.StateQuarantined), heard, withoutHolder)
			}
		}
	}
	return all
}

func isOfSet(l *v1alpha1.IPLease) bool {
	return l.Spec.Holder != nil && l.Spec.Holder.OwnerKind == "StatefulSet"
}

// sequence is one row of writes of one lease by the stolen token.
type sequence struct {
	*env
	token  client.Client
	random *rand.Rand
	// lease is the lease as it is, or nil; before is the last one.
	lease, before *v1alpha1.IPLease
	// mayVerify: the thief's node verifies the lease or has taken it over, or may take it over because a
	// StatefulSet's pod may be on any node. Nothing but its word can prove a predecessor then.
	mayVerify bool
	// unproven: a holder elsewhere may still use the address, and no word has said otherwise.
	unproven bool
	accepted int
	story    string
}

func (s *sequence) begin(t *testing.T) {
	forced(s.lease)
	check.OK(t, s.admin.Create(t.Context(), s.lease))
	s.lease.Annotations = nil
	check.OK(t, s.controller.Update(t.Context(), s.lease))
	s.mayVerify = s.lease.Spec.NodeName == thief || isOfSet(s.lease)
	s.unproven = s.lease.Spec.Previous != nil && s.lease.Spec.Previous.Node == elsewhere
	s.tell("begins", s.lease)
}

func (s *sequence) tell(verb string, l *v1alpha1.IPLease) {
	s.story += fmt.Sprintf("%s: %s %s on %q for %+v, previous %+v\n", verb, l.Spec.State, l.Spec.Reason, l.Spec.NodeName, l.Spec.Holder, l.Spec.Previous)
}

func (s *sequence) end(t *testing.T) {
	if s.lease == nil {
		return
	}
	check.OK(t, s.controller.Delete(t.Context(), s.lease))
}

// call tries one write, and judges it if it was accepted.
func (s *sequence) call(t *testing.T) {
	t.Helper()
	s.before = s.lease
	ctx := t.Context()
	switch {
	case s.lease == nil:
		next := s.change(bound("", "10.1.0.1"))
		next.ResourceVersion, next.UID = "", ""
		if err := s.token.Create(ctx, next); s.took(t, "create", next, err) {
			s.lease = next
		}
	case s.random.IntN(4) == 0:
		if err := s.token.Delete(ctx, s.lease); s.took(t, "delete", s.lease, err) {
			s.lease = nil
		}
	default:
		next := s.change(s.lease)
		if err := s.token.Update(ctx, next); s.took(t, "update", next, err) {
			s.lease = next
		}
	}
}

// took reports whether a write was accepted, and judges it then.
func (s *sequence) took(t *testing.T, verb string, next *v1alpha1.IPLease, err error) bool {
	t.Helper()
	if err != nil {
		check.Must(t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%s: %v", verb, err)
		return false
	}
	s.accepted++
	s.tell(verb, next)
	if verb != "create" {
		s.judge(t, verb, next)
	}
	if verb != "delete" {
		s.judgeController(t, next)
	}
	return true
}

// judge checks one accepted update or deletion by rules of its own.
func (s *sequence) judge(t *testing.T, verb string, next *v1alpha1.IPLease) {
	t.Helper()
	old := s.before.Spec
	if old.NodeName == elsewhere && (old.State == v1alpha1.StateBound || old.State == v1alpha1.StateWarm) {
		t.Errorf("the %s of a lease elsewhere was accepted", verb)
	}
	isKept := old.State == v1alpha1.StateRetained || old.State == v1alpha1.StateQuarantined
	if isKept && old.Holder != nil && !isOfSet(s.before) && old.NodeName == elsewhere && (old.Previous == nil || old.Previous.Node == elsewhere) {
		t.Errorf("the %s of a lease that is kept for a pod elsewhere was accepted", verb)
	}
	if verb == "delete" {
		check.That(t, !s.unproven || s.mayVerify && old.State == v1alpha1.StateQuarantined, "an address became free unproven")
		s.unproven = false
		return
	}
	if s.unproven && next.Spec.Previous == nil {
		isWord := old.State == v1alpha1.StateBound && next.Spec.State == v1alpha1.StateBound ||
			old.State == v1alpha1.StateQuarantined && next.Spec.State == v1alpha1.StateRetained
		check.That(t, isWord && s.mayVerify && old.NodeName == thief, "spec.previous was lost unproven")
		s.unproven = false
	}
	if old.State == v1alpha1.StateBound && next.Spec.Holder != nil && next.Spec.Holder.PodUID != old.Holder.PodUID {
		t.Errorf("a Bound lease changed its holder: %s", cmp.Diff(old.Holder, next.Spec.Holder))
	}
}

// judgeController asks the controller's rules about the lease, with the named pod alive elsewhere and
// the thief's node in every state.
func (s *sequence) judgeController(t *testing.T, l *v1alpha1.IPLease) {
	t.Helper()
	holder := l.Spec.Holder
	if holder == nil || holder.Pod != "web-0" || holder.PodUID != victimUID || l.Spec.NodeName != thief {
		return
	}
	now := time.Now()
	living := &podview.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0", UID: types.UID(victimUID)},
		Spec:       podview.Spec{NodeName: elsewhere}, Status: &podview.Status{Phase: corev1.PodRunning},
	}
	kept := bound("", "10.1.0.2", in(v1alpha1.StateRetained), on(elsewhere), because(v1alpha1.ReasonSandboxEnded))
	kept.Spec.Holder.PodUID = victimUID
	for name, node := range thiefNodes(now) {
		facts := reclaim.Facts{
			Lease: l, Pod: reclaim.View[podview.Pod]{Known: true, Object: living}, Node: node, Now: now,
			Policy: reclaim.Policy{Enabled: true, Terminating: true, NodeDown: reclaim.NodeDown{Take: true, DeletePods: true}},
		}
		if l.Spec.State == v1alpha1.StateBound {
			a := reclaim.Decide(facts)
			check.That(t, !a.Destructive(), "thief's node %s: the controller does %s: %s", name, a.Kind, a.Why)
			facts.Lease, facts.Successor = kept, l
			if a := reclaim.Decide(facts); a.Destructive() {
				t.Errorf("the controller ends the lease of the pod elsewhere: %s: %s", a.Kind, a.Why)
			}
		}
	}
}

func thiefNodes(now time.Time) map[string]reclaim.View[corev1.Node] {
	node := func(ready corev1.ConditionStatus, taints ...corev1.Taint) reclaim.View[corev1.Node] {
		return reclaim.View[corev1.Node]{Known: true, Object: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: thief}, Spec: corev1.NodeSpec{Taints: taints},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
			}}},
		}}
	}
	return map[string]reclaim.View[corev1.Node]{
		"Ready": node(corev1.ConditionTrue), "silent": node(corev1.ConditionUnknown),
		"out of service": node(corev1.ConditionFalse, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}),
		"gone":           {Known: true, AbsentSince: now.Add(-time.Hour)},
	}
}

// change makes another spec of a lease, as one who means harm would: each field is left alone, taken
// from the victim, or made up.
func (s *sequence) change(old *v1alpha1.IPLease) *v1alpha1.IPLease {
	next := old.DeepCopy()
	next.Spec.NodeName = pick(s.random, thief, thief, thief, elsewhere, next.Spec.NodeName)
	next.Spec.State = pick(s.random, next.Spec.State, v1alpha1.StateBound, v1alpha1.StateBound, v1alpha1.StateRetained,
		v1alpha1.StateQuarantined, v1alpha1.StateWarm)
	next.Spec.Reason = pick(s.random, next.Spec.Reason, "", v1alpha1.ReasonConflict, v1alpha1.ReasonSandboxEnded, v1alpha1.ReasonPodGone)
	victim := bound("", "10.1.0.1").Spec.Holder
	victim.PodUID = victimUID
	newer := victim.DeepCopy()
	newer.PodUID = "newer"
	deployed := victim.DeepCopy()
	deployed.OwnerKind, deployed.OwnerName = "ReplicaSet", "web-5d"
	speaker := victim.DeepCopy()
	speaker.MAC = "02:00:00:00:00:07"
	next.Spec.Holder = pick(s.random, next.Spec.Holder, next.Spec.Holder, nil, victim, newer, deployed, speaker)
	next.Spec.Previous = pick(s.random, next.Spec.Previous, next.Spec.Previous, nil,
		&v1alpha1.PreviousHolder{Node: thief, PodUID: victimUID}, &v1alpha1.PreviousHolder{Node: elsewhere, PodUID: victimUID, Token: 9})
	next.Spec.Session = pick(s.random, next.Spec.Session, "", "other/boot")
	return next
}

func pick[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }
