// SPDX-License-Identifier: Apache-2.0

//go:build bench

package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
	"github.com/fenceline/fenceline/test/namespaces"
)

const (
	// probeWindow is the time to verify a silent holder: three rounds of 50 ms.
	probeWindow = 150 * time.Millisecond
	// onlyAddress is the one address of the pool.
	onlyAddress = "10.90.0.2"
)

// TestTimeOfAReclaim prints how long an address is out of use when it is taken by force: from its
// due time until it is free, and until the waiting pod has its answer. Controller, agents and plugin
// are processes. The pool has one address.
func TestTimeOfAReclaim(t *testing.T) {
	c := New(t, 3)
	c.StartController()
	// A verifier hears other nodes only by their claims.
	c.Pool("others", "10.91.0.0/24", "10.91.0.2-10.91.0.9")
	for _, n := range c.Nodes {
		pod := check.Value(n.NewPod(t.Context(), "other-"+n.Name, nil))(t)
		check.Value(n.Begin(t.Context(), pod))(t)
	}
	only := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "only"}, Spec: v1alpha1.IPPoolSpec{
		Subnet: "10.90.0.0/24", IPs: []string{onlyAddress}, Parents: []string{namespaces.Parent},
		Reclaim: &v1alpha1.Reclaim{ExtraGrace: &v1alpha1.Duration{}, Cooldown: &v1alpha1.Duration{}},
	}}
	c.check(c.Create(t.Context(), only))

	watcher := check.Value(client.NewWithWatch(c.Server.Admin(), client.Options{Scheme: c.Scheme()}))(t)
	r := &reclaims{Cluster: c, watcher: watcher}
	live := r.measure(t, "a live node, whose DEL never came", figure.Size(40, 1), reclaim{})
	// The agents are killed, since they return sooner than a watch that was lost.
	cutRounds := figure.Size(20, 1)
	cut := r.measure(t, "a cut node, whose kernel acknowledges", cutRounds, reclaim{fall: (*Node).Fall, rise: (*Node).Rise})
	off := r.measure(t, "a node without power", cutRounds, reclaim{
		fall: func(n *Node, ctx context.Context) error { return errors.Join(n.CutUnderlay(), n.Fall(ctx)) },
		rise: func(n *Node, ctx context.Context) error { return errors.Join(n.HealUnderlay(), n.Rise(ctx)) },
	})
	t.Logf("the machine's %s; a probe window is %s", load(t), probeWindow)
	report := func(name string, s span, percent int, goal time.Duration) {
		figure.Report(t, fmt.Sprintf("%s, p%d", name, percent), figure.Milliseconds(figure.Percentile(s, percent)), "ms", figure.AtMost(figure.Milliseconds(goal)))
	}
	report("reclaim on a live node, due to served", live.served, 50, 370*time.Millisecond)
	report("reclaim on a live node, due to served", live.served, 99, time.Second)
	report("reclaim on a cut node, quarantined to free", cut.freeAfter, 50, 100*time.Millisecond)
	report("reclaim on a node without power, quarantined to free", off.freeAfter, 50, probeWindow+100*time.Millisecond)
}

// load tells how busy the machine is.
func load(t *testing.T) string {
	t.Helper()
	averages := check.Value(os.ReadFile("/proc/loadavg"))(t)
	return fmt.Sprintf("load is %s on %d CPUs", strings.Fields(string(averages))[0], runtime.NumCPU())
}

// reclaim makes the holder's node fail and come back. A nil function does nothing.
type reclaim struct {
	fall, rise func(*Node, context.Context) error
}

// reclaims takes the only address from one pod after the other.
type reclaims struct {
	*Cluster
	watcher client.WithWatch
	pods    int
}

// span are the durations of one part of all rounds.
type span []time.Duration

func (s span) String() string {
	at := func(percent int) time.Duration { return figure.Percentile(s, percent).Round(time.Millisecond) }
	return fmt.Sprintf("p50 %s, p99 %s", at(50), at(99))
}

// spans are the durations of all parts.
type spans struct{ quarantine, free, served, freeAfter, servedAfter span }

func (r *reclaims) measure(t *testing.T, name string, rounds int, how reclaim) (s spans) {
	t.Helper()
	for range rounds {
		m := r.round(t, how)
		s.quarantine, s.free, s.served = append(s.quarantine, m.quarantined.Sub(m.due)), append(s.free, m.freed.Sub(m.due)), append(s.served, m.served.Sub(m.due))
		s.freeAfter, s.servedAfter = append(s.freeAfter, m.freed.Sub(m.quarantined)), append(s.servedAfter, m.served.Sub(m.quarantined))
	}
	t.Logf("%s, %d rounds: due to quarantined %s; due to free %s; due to served %s; quarantined to free %s; quarantined to served %s",
		name, rounds, s.quarantine, s.free, s.served, s.freeAfter, s.servedAfter)
	return s
}

// moments of one round.
type moments struct{ due, quarantined, freed, served time.Time }

func (r *reclaims) pod(t *testing.T, n *Node) *corev1.Pod {
	t.Helper()
	r.pods++
	return check.Value(n.NewPod(t.Context(), fmt.Sprintf("p%d", r.pods), func(p *corev1.Pod) {
		Wants("only")(p)
		p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	}))(t)
}

func (r *reclaims) round(t *testing.T, how reclaim) moments {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*Limit)
	defer cancel()
	// The lease's name makes n2 the verifier. A successor on n2 would be the installed holder of the
	// next round, and n2 could not hear its answer until its guard is swept.
	victim, successors := r.Nodes[0], r.Nodes[2]
	old := check.Value(victim.Begin(ctx, r.pod(t, victim)))(t)
	next := check.Value(successors.NewSandbox(r.pod(t, successors)))(t)
	if how.fall != nil {
		r.check(how.fall(victim, ctx))
	}

	var m moments
	leases := check.Value(r.watcher.Watch(ctx, &v1alpha1.IPLeaseList{}, client.MatchingFields{"metadata.name": onlyAddress}))(t)
	defer leases.Stop()
	m.due = time.Now()
	if answered := check.Value(r.Lease(ctx, old.Addr))(t).Spec.Since.Add(v1alpha1.AnswerTime); answered.After(m.due) {
		m.due = answered
	}
	r.check(r.ForgetPod(ctx, old.Pod))
	served := make(chan error, 1)
	for m.freed.IsZero() {
		event, ok := <-leases.ResultChan()
		if !ok {
			lease := check.Value(r.Lease(t.Context(), old.Addr))(t)
			t.Fatalf("it was due at %s and is not free: %s %s, node %s: %s",
				m.due, lease.Spec.State, lease.Spec.Reason, lease.Spec.NodeName, lease.Spec.Message)
		}
		lease := event.Object.(*v1alpha1.IPLease)
		switch {
		case event.Type == apiwatch.Deleted:
			m.freed = time.Now()
		case lease.Spec.State == v1alpha1.StateQuarantined && m.quarantined.IsZero():
			m.quarantined = time.Now()
			go func() {
				err := next.Add(ctx)
				m.served = time.Now()
				served <- err
			}()
		}
	}
	r.check(<-served)

	r.check(next.Finish(ctx))
	if how.rise != nil {
		r.check(how.rise(victim, ctx))
	}
	r.check(old.End(ctx))
	return m
}
