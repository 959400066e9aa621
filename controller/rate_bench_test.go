// SPDX-License-Identifier: Apache-2.0

//go:build bench

package main

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/figure"
)

const (
	// peerRate is what Spiderpool's garbage collector frees per second on an API
	// server that does nothing else, and no live read before; peerPuts are the raw
	// updates per second of that very server. Machines differ, so what counts is
	// the share of raw updates.
	peerRate, peerPuts = 48.0, 551.0
	// rawWorkers is how many requests the raw writes have under way, as reclaim has.
	rawWorkers = 64
)

// leakedAtOnce is how many leases are due at the same time.
func leakedAtOnce() int { return figure.Size(2000, 60) }

// TestReclaimRate leaks leases while no controller runs, and prints how fast one
// takes them: live reads of the pods, and writes with preconditions. Beside it, in
// the same run, a read and a write of each without any decision.
func TestReclaimRate(t *testing.T) {
	w, server := newWorld(t)
	w.readyNode("n1")
	w.pool("leaked", "10.0.0.0/8")
	// Each had a pod of its own.
	gone := func(i int) *corev1.Pod {
		pod := w.podObject("default", fmt.Sprintf("leaked-%d", i), "n1")
		pod.UID = types.UID(fmt.Sprintf("11111111-0000-4000-8000-%012d", i))
		return pod
	}
	raw := make([]*v1alpha1.IPLease, leakedAtOnce())
	w.inParallel(leakedAtOnce(), func(i int) {
		raw[i] = w.bound("leaked", fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), gone(i))
	})
	config := w.tokenOf(server, "controller")
	own := check.Value(client.New(config, client.Options{Scheme: w.client.Scheme()}))(t)
	put := func(i int, message string) {
		raw[i].Spec.Message = message
		if err := own.Update(w.ctx, raw[i]); err != nil {
			w.Error(err)
		}
	}
	both := w.measure(server, func(i int) {
		pod := &corev1.Pod{}
		if err := client.IgnoreNotFound(own.Get(w.ctx, client.ObjectKeyFromObject(gone(i)), pod)); err != nil {
			w.Error(err)
		}
		put(i, "raw GET and PUT")
	})
	alone := w.measure(server, func(i int) { put(i, "raw PUT") })

	taken := &takenSpan{}
	config.Wrap(taken.transport)
	used, usedHere := w.cpu(server), ownCPU(t)
	w.runController(config, policy(), clock.RealClock{})
	w.eventuallyWithin(3*time.Minute, "all reclaims", func() error {
		if n := taken.count(); n < leakedAtOnce() {
			return fmt.Errorf("%d of %d", n, leakedAtOnce())
		}
		return nil
	})
	cpu, cpuHere := w.cpu(server)-used, ownCPU(t)-usedHere
	check.Equal(t, w.quarantined(), leakedAtOnce(), "Quarantined leases:")
	rate := taken.rate()
	t.Logf("%d leaked leases: %.0f reclaims/s with the live read, %.0f times the %.0f/s of Spiderpool", leakedAtOnce(), rate, rate/peerRate, peerRate)
	t.Logf("raw GET and PUT %.0f/s, %.2f of it; raw PUT alone %.0f/s, %.2f of it, which is %.1f times Spiderpool's share of %.3f",
		both.rate, rate/both.rate, alone.rate, rate/alone.rate, (rate/alone.rate)/(peerRate/peerPuts), peerRate/peerPuts)
	t.Logf("CPU time of the API server: %s a reclaim, raw GET and PUT %s, raw PUT %s; of the controller: %s a reclaim; the machine's load is %s",
		each(cpu), both.cpu, alone.cpu, each(cpuHere), load(t))
	t.Logf("requests of the controller meanwhile: %v", taken.requests)
	figure.Report(t, "reclaims a second, with the live read", rate/both.rate, "× raw GET and PUT", figure.AtLeast(0.33))
	figure.Report(t, "CPU of the controller a reclaim", figure.Milliseconds(each(cpuHere)), "ms")
	if !testing.Short() && rate < both.rate/3 {
		t.Errorf("a reclaim costs more than three times its GET and PUT: %.0f/s of %.0f/s", rate, both.rate)
	}
}

// rawRate is how fast requests were without any decision, and what one took of
// the API server's CPU time.
type rawRate struct {
	rate float64
	cpu  time.Duration
}

func (w world) measure(server *controlplane.Server, request func(int)) rawRate {
	w.Helper()
	began, used := time.Now(), w.cpu(server)
	w.inParallel(leakedAtOnce(), request)
	return rawRate{rate: float64(leakedAtOnce()) / time.Since(began).Seconds(), cpu: each(w.cpu(server) - used)}
}

// each is the share of one lease.
func each(all time.Duration) time.Duration {
	return (all / time.Duration(leakedAtOnce())).Round(10 * time.Microsecond)
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
