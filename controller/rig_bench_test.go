// SPDX-License-Identifier: Apache-2.0

//go:build bench

package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/figure"
)

// takenSpan notes when the controller wrote its first and its last lease.
type takenSpan struct {
	mu          sync.Mutex
	first, last time.Time
	n           int
	// requests of the controller by method, watches among them.
	requests map[string]int
}

func (s *takenSpan) transport(next http.RoundTripper) http.RoundTripper { return spanTripper{s, next} }

type spanTripper struct {
	span *takenSpan
	next http.RoundTripper
}

func (s spanTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	s.span.sent(request.Method)
	asked := time.Now()
	response, err := s.next.RoundTrip(request)
	if err == nil && request.Method == http.MethodPut && response.StatusCode == http.StatusOK && strings.Contains(request.URL.Path, "/ipleases/") {
		s.span.note(asked, time.Now())
	}
	return response, err
}

func (s *takenSpan) note(asked, answered time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == 0 {
		s.first = asked
	}
	s.n++
	s.last = answered
}

func (s *takenSpan) sent(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == nil {
		s.requests = map[string]int{}
	}
	s.requests[method]++
}

func (s *takenSpan) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (s *takenSpan) rate() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.n) / s.last.Sub(s.first).Seconds()
}

// cpu is the CPU time that the API server has used.
func (w world) cpu(server *controlplane.Server) time.Duration {
	w.Helper()
	return check.Value(server.CPU())(w)
}

// ownCPU is the CPU time that this process has used.
func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	check.OK(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// tokenOf returns the access of a ServiceAccount that may do everything. A token is what the controller
// has; to verify an administrator's certificate takes the API server longer.
func (w world) tokenOf(server *controlplane.Server, name string) *rest.Config {
	w.Helper()
	w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name}})
	w.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: name}},
	})
	config := check.Value(server.ServiceAccount(w.ctx, system, name, nil))(w)
	// The binding takes effect a moment later.
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"},
	}}
	access := check.Value(client.New(config, client.Options{Scheme: w.client.Scheme()}))(w)
	w.eventually("the rights of "+name, func() error {
		asked := review.DeepCopy()
		if err := access.Create(w.ctx, asked); err != nil {
			return err
		}
		if !asked.Status.Allowed {
			return errors.New(asked.Status.Reason)
		}
		return nil
	})
	return config
}

// load is how many processes of this machine want a CPU, of the last minute:
// figures of a machine with more than it has CPUs say little.
func load(t *testing.T) string {
	t.Helper()
	text := check.Value(os.ReadFile("/proc/loadavg"))(t)
	return fmt.Sprintf("%s on %d CPUs", strings.Fields(string(text))[0], runtime.NumCPU())
}

const (
	// peerRate is what Spiderpool's garbage collector frees per second on an API server that does
	// nothing else, and no live read before; peerPuts are the raw updates per second of that very
	// server. Machines differ, so what counts is the share of raw updates.
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
		err := own.Update(w.ctx, raw[i])
		check.That(w, err == nil, "%v", err)
	}
	both := w.measure(server, func(i int) {
		err := client.IgnoreNotFound(own.Get(w.ctx, client.ObjectKeyFromObject(gone(i)), &corev1.Pod{}))
		check.That(w, err == nil, "%v", err)
		put(i, "raw GET and PUT")
	})
	alone := w.measure(server, func(i int) { put(i, "raw PUT") })

	taken := &takenSpan{}
	config.Wrap(taken.transport)
	used, usedHere := w.cpu(server), ownCPU(t)
	w.runController(config, policy(), clock.RealClock{})
	w.eventuallyWithin(3*time.Minute, "all reclaims", func() error {
		n := taken.count()
		return unless(n >= leakedAtOnce(), "%d of %d", n, leakedAtOnce())
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

// rawRate is how fast requests were without any decision, and what one took of the API server's CPU time.
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
