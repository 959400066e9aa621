// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/test/check"
)

// The world of the tables: pod default/web-0 with UID holderUID on node n1 holds
// 10.6.0.10; it was bound an hour ago; the pool's extraGrace is 5 s.
const (
	holderUID = "7a3f1c2e-0000-4000-8000-000000000001"
	otherUID  = "7a3f1c2e-0000-4000-8000-000000000002"
	staticUID = "0cc175b9c0f1b6a831c399e269772661"
)

func noon() time.Time { return time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) time.Time { return noon().Add(-d) }

func hence(d time.Duration) time.Time { return noon().Add(d) }

// change is one sentence of a row.
type change func(*Facts)

// facts is the world with changes: without any, a running pod on a Ready node.
func facts(changes ...change) Facts {
	f := Facts{
		Lease: &v1alpha1.IPLease{
			ObjectMeta: metav1.ObjectMeta{Name: "10.6.0.10"},
			Spec: v1alpha1.IPLeaseSpec{
				Address: "10.6.0.10", Pool: "blue", State: v1alpha1.StateBound, NodeName: "n1",
				Session: "node-uid/boot-id", Since: metav1.NewTime(ago(time.Hour)),
				Holder: &v1alpha1.Holder{
					Namespace: "default", Pod: "web-0", PodUID: holderUID, Interface: "eth0",
					ContainerID: "c0ffee", MAC: "02:00:00:00:00:0a", Guarded: true,
				},
			},
		},
		Pod:    View[podview.Pod]{Known: true, Object: pod(holderUID)},
		Node:   View[corev1.Node]{Known: true, Object: node(corev1.ConditionTrue)},
		Policy: clusterPolicy(),
		Now:    noon(),
	}
	for _, c := range changes {
		c(&f)
	}
	return f
}

func pod(uid string) *podview.Pod {
	return &podview.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-0", UID: types.UID(uid),
			CreationTimestamp: metav1.NewTime(ago(time.Hour)),
		},
		Spec:   podview.Spec{NodeName: "n1", TerminationGracePeriodSeconds: ptr.To[int64](30)},
		Status: &podview.Status{Phase: corev1.PodRunning},
	}
}

func node(ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(ago(time.Minute)),
		}}},
	}
}

// Changes of the pod.

func podTerminatingSince(deletion time.Time) change {
	return func(f *Facts) {
		f.Pod.Object.DeletionTimestamp = &metav1.Time{Time: deletion}
		f.Pod.Object.DeletionGracePeriodSeconds = ptr.To[int64](30)
	}
}

func podForceDeleted(deletion time.Time) change {
	return func(f *Facts) {
		podTerminatingSince(deletion)(f)
		f.Pod.Object.DeletionGracePeriodSeconds = ptr.To[int64](0)
	}
}

func podGoneSince(t time.Time) change {
	return func(f *Facts) { f.Pod = View[podview.Pod]{Known: true, AbsentSince: t} }
}

func podElsewhere(f *Facts) { f.Pod.Object.Spec.NodeName = "n2" }

func podUnscheduled(f *Facts) { f.Pod.Object.Spec.NodeName = "" }

// podSeen: an earlier look has found the holder's own pod.
func podSeen(f *Facts) { f.PodSeen = true }

func podDeletedAt(t time.Time) change {
	return func(f *Facts) {
		podGoneSince(t)(f)
		podSeen(f)
	}
}

func podUnknown(f *Facts) { f.Pod = View[podview.Pod]{} }

func podReplacedAt(t time.Time) change {
	return func(f *Facts) {
		f.Pod.Object = pod(otherUID)
		f.Pod.Object.CreationTimestamp = metav1.NewTime(t)
	}
}

func podFinished(phase corev1.PodPhase, at time.Time) change {
	return func(f *Facts) {
		f.Pod.Object.Status.Phase = phase
		f.Pod.Object.Status.ContainerStatuses = []corev1.ContainerStatus{{
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}},
		}}
	}
}

func finishedSeen(at time.Time) change { return func(f *Facts) { f.FinishedSeen = at } }

func podEvicted(at time.Time) change {
	return func(f *Facts) {
		f.Pod.Object.Status.Phase = corev1.PodFailed
		f.Pod.Object.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at),
		}}
	}
}

func podPending(f *Facts) { f.Pod.Object.Status.Phase = corev1.PodPending }

func podOnHostNetwork(f *Facts) { f.Pod.Object.Spec.HostNetwork = true }

func podStatic(f *Facts) {
	f.Lease.Spec.Holder.PodUID = staticUID
	if f.Pod.Object != nil {
		f.Pod.Object.Annotations = map[string]string{"kubernetes.io/config.hash": staticUID, corev1.MirrorPodAnnotationKey: staticUID}
	}
}

// podMirror makes the pod the mirror pod of another static pod of the name.
func podMirror(f *Facts) {
	f.Pod.Object.Annotations = map[string]string{"kubernetes.io/config.hash": "f00d", corev1.MirrorPodAnnotationKey: "f00d"}
}

func podCallsItselfStatic(f *Facts) { delete(f.Pod.Object.Annotations, corev1.MirrorPodAnnotationKey) }

// Changes of the node.

func agentGoneSince(t time.Time) change { return func(f *Facts) { f.AgentAbsentSince = t } }

func nodeNotReady(f *Facts) { f.Node.Object = node(corev1.ConditionUnknown) }

// nodeReportsNotReady is a node's own word, by its own clock.
func nodeReportsNotReady(at time.Time) change {
	return func(f *Facts) {
		f.Node.Object = node(corev1.ConditionFalse)
		f.Node.Object.Status.Conditions[0].LastTransitionTime = metav1.NewTime(at)
	}
}

// nodeSilentTaint is the control plane's.
func nodeSilentTaint(key string, at time.Time) change {
	return func(f *Facts) {
		added := metav1.NewTime(at)
		f.Node.Object.Spec.Taints = append(f.Node.Object.Spec.Taints,
			corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{}},
			corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: &added})
	}
}

func nodeNeverReported(f *Facts) { f.Node.Object.Status.Conditions = nil }

func nodeTainted(f *Facts) {
	f.Node.Object.Spec.Taints = append(f.Node.Object.Spec.Taints,
		corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
}

func nodeGoneSince(t time.Time) change {
	return func(f *Facts) { f.Node = View[corev1.Node]{Known: true, AbsentSince: t} }
}

func nodeUnknown(f *Facts) { f.Node = View[corev1.Node]{} }

// Changes of the lease and the policy.

func boundAt(t time.Time) change { return func(f *Facts) { f.Lease.Spec.Since = metav1.NewTime(t) } }

// at looks later.
func at(t time.Time) change { return func(f *Facts) { f.Now = t } }

func unguarded(f *Facts) { f.Lease.Spec.Holder.Guarded = false }

func inState(s v1alpha1.LeaseState) change { return func(f *Facts) { f.Lease.Spec.State = s } }

func holderMissing(f *Facts) { f.Lease.Spec.Holder = nil }

func storeWentBack(f *Facts) { f.Lease.Spec.Reason = v1alpha1.ReasonStoreWentBack }

func uidMissing(f *Facts) { f.Lease.Spec.Holder.PodUID = "" }

func terminatingOff(f *Facts) { f.Policy.Terminating = false }

func nodeDown(p v1alpha1.NodeDownPolicy) change {
	return func(f *Facts) {
		f.Policy = PolicyOf(&v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Reclaim: &v1alpha1.Reclaim{NodeDown: p}}}, clusterPolicy())
	}
}

// quarantinedFor puts the lease into quarantine, taken from n1, with n2 asked to verify at the given time.
func quarantinedFor(reason v1alpha1.LeaseReason, asked time.Time) change {
	return func(f *Facts) {
		f.Lease.Spec = quarantined(f.Lease.Spec, reason, "n2", asked)
		f.Verifier = Verifier{Node: View[corev1.Node]{Known: true, Object: node(corev1.ConditionTrue)}, Alive: true, AskedAt: asked}
	}
}

// withoutHolder makes a Quarantined lease one that an ADD has found in conflict.
func withoutHolder(f *Facts) { f.Lease.Spec.Holder, f.Lease.Spec.Previous = nil, nil }

func handedOutBy(pools ...string) change {
	return func(f *Facts) { f.Givers = Givers{Known: true, Pools: pools} }
}

// warmTaken are the facts about a lease that was Warm and was quarantined a moment ago.
func warmTaken(reason v1alpha1.LeaseReason, changes ...change) Facts {
	warm := func(f *Facts) { f.Lease.Spec.State, f.Lease.Spec.Holder = v1alpha1.StateWarm, nil }
	return facts(append([]change{warm, quarantinedFor(reason, ago(0))}, changes...)...)
}

func verifierAnswered(message string, changes int) change {
	return func(f *Facts) { f.Lease.Spec.Message, f.Verifier.Changes = message, changes }
}

// otherHeard: the other speaker of a conflict was last heard at that time.
func otherHeard(at time.Time) change {
	return func(f *Facts) { f.Lease.Spec.Conflict = &v1alpha1.Conflict{LastSeen: metav1.NewTime(at)} }
}

func verifierDead(f *Facts) { f.Verifier.Alive = false }

func verifierAway(since time.Time) change {
	return func(f *Facts) { f.Verifier.Alive, f.Verifier.AwaySince = false, since }
}

func verifierGone(f *Facts) {
	f.Verifier.Alive = false
	f.Verifier.Node = View[corev1.Node]{Known: true, AbsentSince: ago(time.Minute)}
}

// asCached returns the facts as they look through the controller's cache.
func asCached(t *testing.T, f Facts) Facts {
	t.Helper()
	for kind, by := range cache.Options().ByObject {
		switch kind.(type) {
		case *podview.Pod:
			f.Pod.Object = slimmed(t, by.Transform, f.Pod.Object)
		case *corev1.Node:
			f.Node.Object = slimmed(t, by.Transform, f.Node.Object)
		}
	}
	return f
}

func slimmed[T any](t *testing.T, transform toolscache.TransformFunc, o *T) *T {
	t.Helper()
	if o == nil {
		return nil
	}
	return check.Value(transform(o))(t).(*T)
}

// clusterPolicy is what the chart sets where nobody changed a value.
func clusterPolicy() Policy {
	return Policy{Enabled: true, Terminating: true, ExtraGrace: 5 * time.Second, NodeDown: NodeDown{Take: true}}
}

func TestAPoolOverridesTheCluster(t *testing.T) {
	strict := Policy{Enabled: true, ExtraGrace: time.Minute}
	for _, row := range []struct {
		name    string
		cluster Policy
		pool    *v1alpha1.IPPool
		want    Policy
	}{
		{"a pool that is gone has the cluster's policy", strict, nil, strict},
		{"a pool without settings has the cluster's policy", strict, poolThat(&v1alpha1.Reclaim{}, nil), strict},
		{"terminating", strict, poolThat(&v1alpha1.Reclaim{Terminating: ptr.To(true)}, nil), Policy{Enabled: true, Terminating: true, ExtraGrace: time.Minute}},
		{"terminating, if the cluster has the opposite", clusterPolicy(), poolThat(&v1alpha1.Reclaim{Terminating: ptr.To(false)}, nil),
			Policy{Enabled: true, ExtraGrace: 5 * s, NodeDown: NodeDown{Take: true}}},
		{"extraGrace of 0", strict, poolThat(&v1alpha1.Reclaim{ExtraGrace: &v1alpha1.Duration{}}, nil), Policy{Enabled: true}},
		{"nodeDown", strict, poolThat(&v1alpha1.Reclaim{NodeDown: v1alpha1.NodeDownAfterTerminating}, nil),
			Policy{Enabled: true, ExtraGrace: time.Minute, NodeDown: NodeDown{Take: true}}},
		{"nodeDown, if the cluster has the opposite", clusterPolicy(), poolThat(&v1alpha1.Reclaim{NodeDown: v1alpha1.NodeDownNever}, nil),
			Policy{Enabled: true, Terminating: true, ExtraGrace: 5 * s}},
		{"a nodeDown that cannot be read takes nothing", clusterPolicy(), poolThat(&v1alpha1.Reclaim{NodeDown: "After a while"}, nil),
			Policy{Enabled: true, Terminating: true, ExtraGrace: 5 * s}},
		{"retention.max", strict, poolThat(nil, &v1alpha1.PoolRetention{Max: &v1alpha1.Duration{Duration: time.Hour}}),
			Policy{Enabled: true, ExtraGrace: time.Minute, RetentionLimit: time.Hour}},
		{"no pool switches reclaim on", Policy{}, poolThat(&v1alpha1.Reclaim{Terminating: ptr.To(true)}, nil), Policy{Terminating: true}},
	} {
		t.Run(row.name, func(t *testing.T) { check.Equal(t, PolicyOf(row.pool, row.cluster), row.want, "got") })
	}
}

func poolThat(r *v1alpha1.Reclaim, keeps *v1alpha1.PoolRetention) *v1alpha1.IPPool {
	return &v1alpha1.IPPool{ObjectMeta: poolObject().ObjectMeta, Spec: v1alpha1.IPPoolSpec{Reclaim: r, Retention: keeps}}
}

func TestFormsOfNodeDown(t *testing.T) {
	for text, want := range map[v1alpha1.NodeDownPolicy]NodeDown{
		"Never":            {},
		"AfterTerminating": {Take: true},
		"After 2m":         {Take: true, DeletePods: true, After: 2 * time.Minute},
		"After 1h30m":      {Take: true, DeletePods: true, After: 90 * time.Minute},
		"After 0s":         {Take: true, DeletePods: true},
	} {
		got, err := ParseNodeDown(text)
		check.That(t, err == nil && got == want, "%q: %+v (%v), want %+v", text, got, err, want)
		again, err := ParseNodeDown(v1alpha1.NodeDownPolicy(got.String()))
		check.That(t, err == nil && again == want, "%q is written %q, which reads %+v (%v)", text, got, again, err)
	}
	for _, text := range []v1alpha1.NodeDownPolicy{"", "never", "After", "After ", "After 5", "After -1s", "2m", "After2m"} {
		got, err := ParseNodeDown(text)
		check.That(t, err != nil && !got.Take, "%q: %+v (%v)", text, got, err)
	}
}

func TestAnActionSaysWhatTheControllerDoes(t *testing.T) {
	for kind, want := range map[Kind]string{
		None: "leaves the lease as it is", Wait: "decides again at 2030-01-01T12:01:00Z", DeletePod: "deletes the pod, and then takes the address",
		Quarantine: "takes the address (PodGone)", Reassign: "asks another node to verify",
		EndRetention: "frees the address", EndQuarantine: "frees the address",
	} {
		a := Action{Kind: kind, Reason: v1alpha1.ReasonPodGone, Until: hence(time.Minute), Why: "the pod is gone."}
		check.Equal(t, a.Sentence(time.Time{}), "The controller "+want+": the pod is gone.", "%s:", kind)
	}
	check.Says(t, Action{Kind: Wait, Until: hence(time.Minute)}.Sentence(noon()), "at 2030-01-01T12:01:00Z, in 60s")
}
