// SPDX-License-Identifier: Apache-2.0

//go:build api

package subnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/metrics"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

var errKilled = errors.New("the controller was killed")

// life is one life of the controller. It ends at a write.
type life struct {
	// left is the number of writes until the end. With 0 it does not end.
	left atomic.Int64
	// lost: the last write reaches the API server, and its answer is lost.
	lost   bool
	killed atomic.Bool
	writes atomic.Int64
}

// do carries out a write, unless the controller is killed before it.
func (l *life) do(write func() error) error {
	if l.killed.Load() {
		return errKilled
	}
	l.writes.Add(1)
	if l.left.Add(-1) != 0 {
		return write()
	}
	l.killed.Store(true)
	if l.lost {
		_ = write() // nobody hears the result
	}
	return errKilled
}

// play is a cluster in which applications come, change and go.
type play struct {
	*testing.T
	client client.WithWatch
	clock  *testingclock.FakePassiveClock
	life   *life
	r      *Reconciler
}

// begin starts a controller that knows nothing.
func (p *play) begin(l *life) {
	p.life = l
	c := interceptor.NewClient(p.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return l.do(func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return l.do(func() error { return c.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return l.do(func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return l.do(func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
		// The index of the controller's cache is a field of the API server.
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			for i, o := range opts {
				if fields, ok := o.(client.MatchingFields); ok && fields[cache.LeasesByPool] != "" {
					opts[i] = client.MatchingFields{"spec.pool": fields[cache.LeasesByPool]}
				}
			}
			return c.List(ctx, list, opts...)
		},
	})
	p.r = &Reconciler{
		Client: c, Live: p.client, Events: events.NewFakeRecorder(1000), Metrics: metrics.New(prometheus.NewRegistry()),
		Clock: p.clock, Settle: Settle, Owners: owner.Asker{Live: p.client, Scales: p.client, Mapper: p.client.RESTMapper()},
	}
}

// settle runs passes until nothing is left to do. A killed controller is followed by another one.
func (p *play) settle() {
	p.Helper()
	for range 100 {
		before := p.life.writes.Load()
		again, err := p.r.pass(p.Context())
		p.check()
		p.finalize()
		switch {
		case p.life.killed.Load():
			p.begin(&life{})
		case isStale(err):
		case err != nil:
			p.Fatal(err)
		case again == 0 && p.life.writes.Load() == before:
			return
		}
		p.clock.SetTime(p.clock.Now().Add(max(again, interval)))
	}
	p.Fatal("the controller does not come to rest")
}

// finalize lets pools end that are being deleted, as controller/pool does.
func (p *play) finalize() {
	p.Helper()
	var pools v1alpha1.IPPoolList
	check.OK(p, p.client.List(p.Context(), &pools))
	for i := range pools.Items {
		if pool := &pools.Items[i]; pool.DeletionTimestamp != nil {
			pool.Finalizers = nil
			check.OK(p, p.client.Update(p.Context(), pool))
		}
	}
}

// check fails the test if pools have a common address, or a lease has an address outside of its pool.
func (p *play) check() {
	p.Helper()
	var pools v1alpha1.IPPoolList
	var leases v1alpha1.IPLeaseList
	check.OK(p, errors.Join(p.client.List(p.Context(), &pools), p.client.List(p.Context(), &leases)))
	holders, sets := map[netip.Addr]string{}, map[string]poolset.Set{}
	for _, pool := range pools.Items {
		ips := check.Value(poolset.Parse(pool.Spec.IPs))(p)
		sets[pool.Name] = ips
		for i := range ips.Len() {
			other := holders[ips.At(i)]
			check.That(p, other == "", "%s and %s have %s", other, pool.Name, ips.At(i))
			holders[ips.At(i)] = pool.Name
		}
	}
	for _, l := range leases.Items {
		check.That(p, sets[l.Spec.Pool].Contains(l.Spec.Addr()), "pool %s of a lease does not have %s", l.Spec.Pool, l.Spec.Address)
	}
}

// summary is the state that every run must reach: the sizes of the pools, and the counts of the IPSubnet.
func (p *play) summary() []string {
	p.Helper()
	var pools v1alpha1.IPPoolList
	var s v1alpha1.IPSubnet
	check.OK(p, errors.Join(p.client.List(p.Context(), &pools), p.client.Get(p.Context(), client.ObjectKey{Name: "s"}, &s)))
	var lines []string
	for _, pool := range pools.Items {
		ips := check.Value(poolset.Parse(pool.Spec.IPs))(p)
		lines = append(lines, fmt.Sprintf("%s has %d addresses, excludes %v", pool.Spec.Application.Name, ips.Len(), pool.Spec.ExcludeIPs))
	}
	slices.Sort(lines)
	return append(lines, fmt.Sprintf("%d pools with %d addresses, %d are being made", s.Status.PoolCount, s.Status.Allocated, len(s.Status.Carving)))
}

func (p *play) deployment(name string, replicas int32) {
	p.Helper()
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	d.Spec.Selector, d.Spec.Replicas = &metav1.LabelSelector{MatchLabels: labels}, ptr.To(replicas)
	d.Spec.Template.Labels, d.Spec.Template.Annotations = labels, map[string]string{v1alpha1.AnnotationPrefix + "subnet": `{"ipv4":["s"]}`}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "none"}}
	check.OK(p, p.client.Create(p.Context(), d))
}

func (p *play) scale(name string, replicas int32) {
	p.Helper()
	d := &appsv1.Deployment{}
	check.OK(p, p.client.Get(p.Context(), client.ObjectKey{Namespace: "default", Name: name}, d))
	d.Spec.Replicas = ptr.To(replicas)
	check.OK(p, p.client.Update(p.Context(), d))
}

// lease makes a lease of the last address of an application's pool.
func (p *play) lease(app string) {
	p.Helper()
	var pools v1alpha1.IPPoolList
	check.OK(p, p.client.List(p.Context(), &pools))
	for _, pool := range pools.Items {
		if pool.Spec.Application.Name != app {
			continue
		}
		ips := check.Value(poolset.Parse(pool.Spec.IPs))(p)
		addr := ips.At(ips.Len() - 1)
		l := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName("", addr)}}
		l.Spec = v1alpha1.IPLeaseSpec{
			Address: addr.String(), Pool: pool.Name, NodeName: "n1", Session: "s/1", State: v1alpha1.StateWarm, Parent: "eth1",
		}
		check.OK(p, p.client.Create(p.Context(), l))
	}
}

// run lets applications come, grow, shrink and go. The controller is killed at a write; 0: at none. It
// returns the end, and the number of writes of the first controller.
func (p *play) run(kill int64, lost bool) (end []string, writes int64) {
	p.Helper()
	all := []client.Object{&v1alpha1.IPLease{}, &v1alpha1.IPPool{}, &v1alpha1.IPSubnet{}}
	defer func() {
		for _, o := range all {
			check.OK(p, p.client.DeleteAllOf(p.Context(), o))
			p.finalize()
		}
		check.OK(p, p.client.DeleteAllOf(p.Context(), &appsv1.Deployment{}, client.InNamespace("default")))
	}()
	first := &life{lost: lost}
	first.left.Store(kill)
	p.begin(first)
	check.OK(p, p.client.Create(p.Context(), &v1alpha1.IPSubnet{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: v1alpha1.IPSubnetSpec{Subnet: "10.90.0.0/26"}}))
	p.deployment("grows", 2)
	p.deployment("shrinks", 6)
	p.deployment("goes", 3)
	p.settle()
	p.lease("shrinks")
	p.scale("grows", 7)
	p.scale("shrinks", 1)
	check.OK(p, p.client.Delete(p.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "goes"}}))
	p.settle()
	p.deployment("comes", 4)
	p.settle()
	return p.summary(), first.writes.Load()
}

// A controller that is killed before or after any of its writes leaves nothing that its successor does not
// bring to the same end. At no moment do two pools have an address, or does a lease lose its pool.
func TestAControllerKilledAtAnyWriteLeavesAllToItsSuccessor(t *testing.T) {
	server := controlplane.New(t)
	scheme := check.Value(cache.Scheme())(t)
	config := rest.CopyConfig(server.Admin())
	config.ContentType = runtime.ContentTypeJSON // as the controller does
	c := check.Value(client.NewWithWatch(config, client.Options{Scheme: scheme}))(t)
	p := &play{T: t, client: c, clock: testingclock.NewFakePassiveClock(time.Now())}
	want := []string{
		"comes has 5 addresses, excludes []", "grows has 8 addresses, excludes []", "shrinks has 2 addresses, excludes []",
		"3 pools with 15 addresses, 0 are being made",
	}
	got, writes := p.run(0, false)
	diff := cmp.Diff(want, got)
	check.Must(t, diff == "" && writes >= 10, "%d writes without a death: %s", writes, diff)
	t.Logf("%d writes", writes)
	for n := int64(1); n <= writes; n++ {
		for _, lost := range []bool{false, true} {
			got, _ := p.run(n, lost)
			check.Same(t, got, want, "killed at write %d (carried out: %v)", n, lost)
		}
	}
}
