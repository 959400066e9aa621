// SPDX-License-Identifier: Apache-2.0

//go:build api

package reclaim

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/metrics"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

// frozen is a reconciler whose cache stands still over a real API server, where
// somebody changes an object at the last moment: after the live read, before the
// write. So only the write's own preconditions are left to protect (R11).
type frozen struct {
	*testing.T
	api        client.WithWatch
	reconciler *Reconciler
	attempts   *int
}

// freeze makes the objects and stops the cache at what they are. before runs
// ahead of each of the reconciler's writes.
func freeze(t *testing.T, server *controlplane.Server, before func(frozen), objects ...client.Object) frozen {
	t.Helper()
	scheme := runtime.NewScheme()
	check.OK(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	api := check.Value(client.NewWithWatch(server.Admin(), client.Options{Scheme: scheme}))(t)
	ours := check.Value(cache.Scheme())(t)
	config := rest.CopyConfig(server.Admin())
	config.ContentType = runtime.ContentTypeJSON
	own := check.Value(client.NewWithWatch(config, client.Options{Scheme: ours}))(t)
	f := frozen{T: t, api: api, attempts: new(int)}
	for _, o := range objects {
		f.create(o)
	}
	last := func() { *f.attempts++; before(f) }
	writes := interceptor.NewClient(own, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			last()
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			last()
			return c.Delete(ctx, o, opts...)
		},
	})
	// With a pool there is nothing to remark, so the first write is the one that matters.
	cached := view(t, append(objects, poolObject())).Build()
	f.reconciler = &Reconciler{
		Reader: Reader{Cache: cached, Live: own, Clock: clocktesting.NewFakeClock(time.Now().Add(time.Hour)), Namespace: namespace, Defaults: clusterPolicy()},
		Client: writes, Events: events.NewFakeRecorder(100), Metrics: metrics.New(prometheus.NewRegistry()),
	}
	f.reconciler.begin()
	return f
}

func (f frozen) create(o client.Object) {
	f.Helper()
	check.OK(f, f.api.Create(context.Background(), o))
}

func (f frozen) remove(o client.Object) {
	f.Helper()
	check.OK(f, f.api.Delete(context.Background(), o, client.GracePeriodSeconds(0)))
}

// look reconciles the lease twice: a wait of the first look is over in the
// second. It fails if nothing was attempted, for then nothing was guarded.
func (f frozen) look(name string) {
	f.Helper()
	for range 2 {
		check.Value(f.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}}))(f)
		f.reconciler.Reader.Clock.(*clocktesting.FakeClock).Step(time.Hour)
	}
	check.Must(f, *f.attempts != 0, "the reconciler tried nothing")
}

func (f frozen) lease(name string) *v1alpha1.IPLease {
	f.Helper()
	lease := &v1alpha1.IPLease{}
	check.OK(f, f.api.Get(context.Background(), types.NamespacedName{Name: name}, lease))
	return lease
}

func freshLease(address string, edit func(*v1alpha1.IPLeaseSpec)) *v1alpha1.IPLease {
	lease := leaseObject()
	lease.Name, lease.UID, lease.Spec.Address = address, "", address
	lease.Spec.Since = metav1.NewTime(time.Now().Add(-time.Minute)) // its ADD is long answered
	edit(&lease.Spec)
	return lease
}

// TestTheWriteItselfIsGuarded: each row changes the world between the last read and the write.
func TestTheWriteItselfIsGuarded(t *testing.T) {
	server := controlplane.New(t)
	once := func(do func(frozen)) func(frozen) {
		done := false
		return func(f frozen) {
			if !done {
				done = true
				do(f)
			}
		}
	}
	ofOther := func(s *v1alpha1.IPLeaseSpec) { s.Holder.PodUID = otherUID }
	for address, row := range map[string]struct {
		name      string
		before    func(*v1alpha1.IPLeaseSpec)
		meanwhile func(frozen, *v1alpha1.IPLease)
	}{
		"10.6.0.1": {"a lease that its agent wrote is not quarantined", func(*v1alpha1.IPLeaseSpec) {}, func(f frozen, l *v1alpha1.IPLease) {
			ofOther(&l.Spec)
			check.OK(f, f.api.Update(context.Background(), l))
		}},
		"10.6.0.2": {"a lease that was freed and given again is not quarantined", func(*v1alpha1.IPLeaseSpec) {}, func(f frozen, l *v1alpha1.IPLease) {
			f.remove(l)
			f.create(freshLease(l.Name, ofOther))
		}},
		"10.6.0.3": {"a retained lease that was taken over is not freed", func(s *v1alpha1.IPLeaseSpec) {
			s.State, s.Holder.OwnerKind, s.Holder.OwnerName = v1alpha1.StateRetained, "StatefulSet", "web"
		}, func(f frozen, l *v1alpha1.IPLease) {
			l.Spec.State = v1alpha1.StateBound
			check.OK(f, f.api.Update(context.Background(), l))
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := freeze(t, server, once(func(f frozen) { row.meanwhile(f, f.lease(address)) }), freshLease(address, row.before))
			f.look(address)
			check.Equal(t, f.lease(address).Spec.State, v1alpha1.StateBound, "the lease of another pod is")
		})
	}

	t.Run("a pod that was made again is not deleted in place of the old one", func(t *testing.T) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
		instance := func() *corev1.Pod {
			return &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0"},
				Spec: corev1.PodSpec{NodeName: "n1", TerminationGracePeriodSeconds: ptr.To[int64](0),
					Containers: []corev1.Container{{Name: "main", Image: "none"}}},
			}
		}
		f := freeze(t, server, func(frozen) {})
		f.create(account)
		old := instance()
		f.create(old)
		second := instance()
		lease := freshLease("10.6.0.4", func(s *v1alpha1.IPLeaseSpec) { s.Holder.PodUID = string(old.UID) })
		f = freeze(t, server, once(func(f frozen) {
			f.remove(old.DeepCopy())
			f.create(second)
		}), lease)
		f.reconciler.Reader.Cache = view(t, objects(lease, poolObject(), cachedPod(old))).Build()
		f.look("10.6.0.4")
		got := &corev1.Pod{}
		check.OK(t, f.api.Get(context.Background(), client.ObjectKeyFromObject(second), got)) // it was not deleted in place of the old one
		check.That(t, got.UID == second.UID && got.DeletionTimestamp == nil,
			"pod %s, deleted %v; want %s", got.UID, got.DeletionTimestamp, second.UID)
	})
}

// TestATakenLeaseHasNoTrackedFields: the API server would compare each field of
// each write with who wrote it last.
func TestATakenLeaseHasNoTrackedFields(t *testing.T) {
	f := freeze(t, controlplane.New(t), func(frozen) {}, freshLease("10.6.0.5", func(*v1alpha1.IPLeaseSpec) {}))
	check.Must(t, len(f.lease("10.6.0.5").ManagedFields) != 0, "the API server tracks none in any case")
	f.look("10.6.0.5")
	taken := f.lease("10.6.0.5")
	check.That(t, taken.Spec.State == v1alpha1.StateQuarantined && len(taken.ManagedFields) == 0,
		"lease is %s, with tracked fields %v", taken.Spec.State, taken.ManagedFields)
	// The next writer need not know.
	taken.Spec.Message = "fenced"
	check.OK(t, f.api.Update(context.Background(), taken))
	check.None(t, f.lease("10.6.0.5").ManagedFields, "the next write brought them back:")
}

func cachedPod(pod *corev1.Pod) *podview.Pod {
	slim := &podview.Pod{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Spec: podview.Spec{NodeName: pod.Spec.NodeName}, Status: &podview.Status{Phase: pod.Status.Phase}}
	slim.ResourceVersion = "" // a fake client makes its own
	return slim
}
