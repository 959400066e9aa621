// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/metrics"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/test/check"
)

const namespace = "fenceline-system"

// bench is a reconciler between two views of a cluster.
type bench struct {
	t             *testing.T
	cached, live  client.Client
	reconciler    *Reconciler
	clock         *clocktesting.FakeClock
	deletedOnLive []string
}

// indexer lets a fake client have the cache's indexes.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, fn client.IndexerFunc) error {
	i.WithIndex(o, field, fn)
	return nil
}

// agreed makes a bench whose cache shows what there is.
func agreed(t *testing.T, groups ...any) *bench {
	t.Helper()
	return between(t, objects(groups...), objects(groups...))
}

// between makes a bench. Objects of cached and live are not the same in memory, but may be equal.
func between(t *testing.T, cached, live []client.Object) *bench {
	t.Helper()
	b := &bench{t: t, clock: clocktesting.NewFakeClock(noon())}
	b.cached = view(t, cached).Build()
	b.live = view(t, live).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			b.deletedOnLive = append(b.deletedOnLive, o.GetName())
			return c.Delete(ctx, o, opts...)
		},
	}).Build()
	b.reconciler = &Reconciler{
		Reader: Reader{Cache: b.cached, Live: b.live, Clock: b.clock, Namespace: namespace, Defaults: clusterPolicy()},
		Client: b.live, Events: events.NewFakeRecorder(100), Metrics: metrics.New(prometheus.NewRegistry()),
	}
	b.reconciler.begin()
	return b
}

func view(t *testing.T, objects []client.Object) *fake.ClientBuilder {
	t.Helper()
	builder := fake.NewClientBuilder().WithScheme(check.Value(cache.Scheme())(t))
	for _, o := range objects {
		builder.WithObjects(o.DeepCopyObject().(client.Object))
	}
	check.OK(t, cache.AddIndexes(context.Background(), indexer{builder}))
	return builder
}

// look reconciles the lease of the tables.
func (b *bench) look() (ctrl.Result, error) {
	return b.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "10.6.0.10"}})
}

// lookUntilDue reconciles as often as the reconciler asks for within a minute, and fails on errors.
func (b *bench) lookUntilDue() {
	b.t.Helper()
	for end := b.clock.Now().Add(time.Minute); b.clock.Now().Before(end); {
		result := check.Value(b.look())(b.t)
		if result.RequeueAfter == 0 {
			return
		}
		b.clock.Step(result.RequeueAfter)
	}
}

func (b *bench) lease() *v1alpha1.IPLease {
	b.t.Helper()
	lease := &v1alpha1.IPLease{}
	err := b.live.Get(context.Background(), types.NamespacedName{Name: "10.6.0.10"}, lease)
	if apierrors.IsNotFound(err) {
		return nil
	}
	check.OK(b.t, err)
	return lease
}

// wantTaken wants the lease Quarantined for a reason, with one of the verifiers if any are named.
func (b *bench) wantTaken(reason v1alpha1.LeaseReason, verifiers ...string) {
	b.t.Helper()
	got := b.lease().Spec
	check.That(b.t, got.State == v1alpha1.StateQuarantined && got.Reason == reason, "lease is %s (%s), want Quarantined (%s)", got.State, got.Reason, reason)
	check.That(b.t, len(verifiers) == 0 || slices.Contains(verifiers, got.NodeName), "%q verifies, want %q", got.NodeName, verifiers)
}

func (b *bench) wantUntouched() {
	b.t.Helper()
	check.That(b.t, len(b.deletedOnLive) == 0, "deleted on one observation: %v", b.deletedOnLive)
	l := b.lease()
	check.That(b.t, l != nil && l.Spec.State != v1alpha1.StateQuarantined && l.Spec.Reason == "", "taken on one observation: %+v", l)
}

// The objects of the tables.

func leaseObject(changes ...change) *v1alpha1.IPLease {
	lease := facts(changes...).Lease
	lease.UID = "lease-uid"
	return lease
}

func podObject(changes ...change) *podview.Pod {
	p := facts(changes...).Pod.Object
	if p.DeletionTimestamp != nil {
		p.Finalizers = []string{"test/keep"} // the fake client refuses deletion without
	}
	return p
}

func poolObject() *v1alpha1.IPPool {
	return &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "blue"}, Spec: v1alpha1.IPPoolSpec{Subnet: "10.6.0.0/24"}}
}

func agentOn(name string) []client.Object {
	n := node(corev1.ConditionTrue)
	n.Name = name
	return []client.Object{n, &podview.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent-" + name, Labels: map[string]string{
			"app.kubernetes.io/name": "fenceline", "app.kubernetes.io/component": "agent"}},
		Spec:   podview.Spec{NodeName: name, HostNetwork: true},
		Status: &podview.Status{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}}
}

func statefulSet(replicas int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To(replicas)},
	}
}

func ownedByWeb(f *Facts) {
	f.Lease.Spec.Holder.OwnerKind, f.Lease.Spec.Holder.OwnerName = "StatefulSet", "web"
}

func objects(groups ...any) (all []client.Object) {
	for _, g := range groups {
		switch g := g.(type) {
		case client.Object:
			all = append(all, g)
		case []client.Object:
			all = append(all, g...)
		}
	}
	return all
}
