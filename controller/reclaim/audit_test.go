// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func TestTheAuditLooksAtEveryLeaseOncePerPeriod(t *testing.T) {
	first, second := leaseObject(), leaseObject()
	second.Name, second.UID, second.Spec.Address = "10.6.0.11", "other-uid", "10.6.0.11"
	b := between(t, objects(first, second), nil)
	woken := make(chan string)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- b.reconciler.audit(ctx, 10*time.Minute, func(_ context.Context, l *v1alpha1.IPLease) error {
			woken <- l.Name
			return nil
		})
	}()
	for range 2 {
		for !b.clock.HasWaiters() {
			runtime.Gosched() // until the audit has its ticker
		}
		b.clock.Step(10 * time.Minute)
		if got := map[string]bool{<-woken: true, <-woken: true}; len(got) != 2 {
			t.Errorf("woken: %v", got)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestTheAuditFindsWhatNoEventTold: the pod goes, and the watch's event is lost.
func TestTheAuditFindsWhatNoEventTold(t *testing.T) {
	const period = 10 * time.Minute
	world := objects(poolObject(), leaseObject(), podObject(), agentOn("n1"))
	b := between(t, world, world)
	if _, err := b.look(); err != nil {
		t.Fatal(err)
	}
	for _, view := range []client.Client{b.cached, b.live} {
		if err := view.Delete(t.Context(), podObject()); err != nil {
			t.Fatal(err)
		}
	}
	woken := make(chan string)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- b.reconciler.audit(ctx, period, func(_ context.Context, l *v1alpha1.IPLease) error {
			woken <- l.Name
			return nil
		})
	}()
	for !b.clock.HasWaiters() {
		runtime.Gosched() // until the audit has its ticker
	}
	b.clock.Step(period)
	if name := <-woken; name != "10.6.0.10" {
		t.Errorf("woken: %s", name)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	b.lookUntilDue()
	if got := b.lease().Spec; got.State != v1alpha1.StateQuarantined || got.Reason != v1alpha1.ReasonPodDeleted {
		t.Errorf("lease is %s (%s), want Quarantined (PodDeleted)", got.State, got.Reason)
	}
}

// TestWithheldIsSaidOnce: a lease that is due while reclaim is switched off.
func TestWithheldIsSaidOnce(t *testing.T) {
	world := objects(poolObject(), leaseObject(), agentOn("n1"))
	b := between(t, world, world)
	b.reconciler.Defaults.Enabled = false
	for range 4 {
		if _, err := b.look(); err != nil {
			t.Fatal(err)
		}
		b.clock.Step(time.Minute)
		// The write reaches the cache.
		if err := b.cached.Delete(t.Context(), leaseObject()); err != nil {
			t.Fatal(err)
		}
		seen := b.lease()
		seen.ResourceVersion = ""
		if err := b.cached.Create(t.Context(), seen); err != nil {
			t.Fatal(err)
		}
	}
	b.wantUntouched()
	recorder := b.reconciler.Events.(*events.FakeRecorder)
	if n := len(recorder.Events); n != 2 {
		t.Errorf("%d events, want one on the lease and one on the pool", n)
	}
	for range len(recorder.Events) {
		if e := <-recorder.Events; !strings.Contains(e, eventWithheld) {
			t.Errorf("event %q", e)
		}
	}
}
