//go:build bench

package main

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// leakedAtOnce is how many leases are due at the same time.
	leakedAtOnce = 2000
	// peerRate is what Spiderpool's garbage collector frees per second on an API
	// server that does nothing else, and no live read before.
	peerRate = 48.0
	// rawWorkers is how many requests the raw writes have under way, as reclaim has.
	rawWorkers = 32
)

// TestReclaimRate leaks leases while no controller runs, and prints how fast one
// takes them: the live read of the pod, and the write with preconditions. Beside
// it, in the same run, the same requests without any decision.
func TestReclaimRate(t *testing.T) {
	w, server := newWorld(t)
	w.readyNode("n1")
	w.pool("leaked", "10.0.0.0/8")
	gone := w.podObject("default", "leaked-0", "n1")
	gone.UID = "11111111-0000-4000-8000-000000000000"
	raw := make([]*v1alpha1.IPLease, leakedAtOnce)
	w.inParallel(leakedAtOnce, func(i int) {
		raw[i] = w.bound("leaked", fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), gone)
	})
	began, used := time.Now(), w.cpu(server)
	w.inParallel(leakedAtOnce, func(i int) {
		pod := &corev1.Pod{}
		if err := client.IgnoreNotFound(w.client.Get(w.ctx, client.ObjectKeyFromObject(gone), pod)); err != nil {
			w.Error(err)
		}
		raw[i].Spec.Message = "raw"
		if err := w.client.Update(w.ctx, raw[i]); err != nil {
			w.Error(err)
		}
	})
	rawRate := leakedAtOnce / time.Since(began).Seconds()
	rawCPU := w.cpu(server) - used

	taken := &takenSpan{}
	config := rest.CopyConfig(server.Admin())
	config.Wrap(taken.transport)
	used = w.cpu(server)
	w.runController(config, policy(), clock.RealClock{})
	w.eventuallyWithin(3*time.Minute, "all reclaims", func() error {
		if n := taken.count(); n < leakedAtOnce {
			return fmt.Errorf("%d of %d", n, leakedAtOnce)
		}
		return nil
	})
	cpu := w.cpu(server) - used
	if n := w.quarantinedLeases(); n != leakedAtOnce {
		t.Errorf("%d leases are quarantined, want %d", n, leakedAtOnce)
	}
	rate := taken.rate()
	t.Logf("%d leaked leases: %.0f reclaims/s with the live read; raw GET and PUT %.0f/s; %.2f of raw; %.0f times the %.0f/s of Spiderpool",
		leakedAtOnce, rate, rawRate, rate/rawRate, rate/peerRate, peerRate)
	t.Logf("CPU time of the API server: %s a reclaim, raw %s; the machine's load is %s",
		(cpu / leakedAtOnce).Round(10*time.Microsecond), (rawCPU / leakedAtOnce).Round(10*time.Microsecond), load(t))
	t.Logf("requests of the controller meanwhile: %v", taken.requests)
	if rate < rawRate/3 {
		t.Errorf("a reclaim costs more than three times its GET and PUT: %.0f/s of %.0f/s", rate, rawRate)
	}
}

// inParallel calls do for 0 to n-1.
func (w world) inParallel(n int, do func(int)) {
	var workers sync.WaitGroup
	next := make(chan int)
	for range rawWorkers {
		workers.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}
