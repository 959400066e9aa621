// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

const auditTestPeriod = 10 * time.Minute

// audit runs the audit until the test ends. woken returns the leases that it has woken since the last
// call, in order, once it waits again. The test is a bubble of synctest.
func (b *bench) audit() (woken func() []string) {
	b.t.Helper()
	var names []string
	ctx, stop := context.WithCancel(b.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.reconciler.audit(ctx, auditTestPeriod, func(r ctrl.Request) { names = append(names, r.Name) })
	}()
	b.t.Cleanup(func() {
		stop()
		<-ended
	})
	synctest.Wait() // until the audit has its ticker
	return func() []string {
		synctest.Wait()
		got := names
		names = nil
		slices.Sort(got)
		return got
	}
}

func TestTheAuditLooksAtEveryLeaseOncePerPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := leaseObject(), leaseObject()
		second.Name, second.UID, second.Spec.Address = "10.6.0.11", "other-uid", "10.6.0.11"
		b := between(t, objects(first, second), nil)
		woken := b.audit()
		for range 2 {
			b.clock.Step(auditTestPeriod - time.Second)
			check.None(t, woken(), "woken before the period has passed:")
			b.clock.Step(time.Second)
			check.List(t, woken(), []string{first.Name, second.Name}, "woken:")
		}
	})
}

// TestTheAuditFindsWhatNoEventTold: the pod goes, and the watch's event is lost.
func TestTheAuditFindsWhatNoEventTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := objects(poolObject(), leaseObject(), podObject(), agentOn("n1"))
		b := between(t, world, world)
		check.Value(b.look())(t)
		for _, view := range []client.Client{b.cached, b.live} {
			check.OK(t, view.Delete(t.Context(), podObject()))
		}
		woken := b.audit()
		b.clock.Step(auditTestPeriod)
		check.List(t, woken(), []string{"10.6.0.10"}, "woken:")
		b.lookUntilDue()
		b.wantTaken(v1alpha1.ReasonPodDeleted)
	})
}

// TestWithheldIsSaidOnce: a lease that is due while reclaim is switched off.
func TestWithheldIsSaidOnce(t *testing.T) {
	world := objects(poolObject(), leaseObject(), agentOn("n1"))
	b := between(t, world, world)
	b.reconciler.Defaults.Enabled = false
	for range 4 {
		check.Value(b.look())(t)
		b.clock.Step(time.Minute)
		// The write reaches the cache.
		check.OK(t, b.cached.Delete(t.Context(), leaseObject()))
		seen := b.lease()
		seen.ResourceVersion = ""
		check.OK(t, b.cached.Create(t.Context(), seen))
	}
	b.wantUntouched()
	recorder := b.reconciler.Events.(*events.FakeRecorder)
	n := len(recorder.Events)
	check.That(t, n == 2, "%d events, want one on the lease and one on the pool", n)
	for range len(recorder.Events) {
		e := <-recorder.Events
		check.That(t, strings.Contains(e, eventWithheld), "event %q", e)
	}
}
