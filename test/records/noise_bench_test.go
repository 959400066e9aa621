// SPDX-License-Identifier: Apache-2.0

//go:build bench && api

package records

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/figure"
)

// TestFiguresOfANoisyAgent prints how long another agent's creates and deletes of leases take while one
// agent writes conflicts or events: at the pace of agents, and as fast as it can by many calls at once,
// which only a broken agent or the holder of its token does; with the FlowSchemas of the chart and
// without them.
func TestFiguresOfANoisyAgent(t *testing.T) {
	rounds, nodes, parallel := figure.Size(200, 5), figure.Size(100, 4), figure.Size(64, 4)
	e := installed(t)
	noisy, other := e.agent(t, "n1"), e.agent(t, "n2")
	var held []*v1alpha1.IPLease
	for w := range nodes {
		held = append(held, bound("", fmt.Sprintf("10.2.0.%d", w)))
		check.OK(t, noisy.Create(t.Context(), held[w]))
	}
	conflict := func(ctx context.Context, w int) error {
		speaker := fmt.Sprintf("02:00:00:00:01:%02x", time.Now().Nanosecond()/1000%256)
		held[w].Spec.Conflict = &v1alpha1.Conflict{MAC: speaker, Source: "observer", LastSeen: metav1.Now()}
		err := noisy.Update(ctx, held[w])
		if apierrors.IsConflict(err) { // the answer to an earlier write was cut off
			err = noisy.Get(ctx, client.ObjectKeyFromObject(held[w]), held[w])
		}
		return err
	}
	event := func(ctx context.Context, _ int) error { return noisy.Create(ctx, agentEvent("Node", "n1")) }
	for _, queues := range []string{"with", "without"} {
		if queues == "without" {
			e.removeQueues(t)
		}
		calm := e.timesOfADDs(t, other, rounds)
		t.Logf("%s FlowSchemas, calm: %s", queues, quantiles(calm))
		for _, noise := range []struct {
			name    string
			write   func(context.Context, int) error
			workers int
			pause   time.Duration
		}{
			{"conflicts at the pace of an agent", conflict, 1, time.Second},
			{"conflicts at the pace of 100 agents", conflict, nodes, time.Second},
			{"conflicts without a pace", conflict, parallel, 0},
			{"events without a pace", event, parallel, 0},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			var written, failed atomic.Int64
			for w := range noise.workers {
				wg.Go(func() {
					for ctx.Err() == nil {
						if err := noise.write(ctx, w); err == nil {
							written.Add(1)
						} else if ctx.Err() == nil && failed.Add(1) == 1 {
							t.Logf("%s: %v", noise.name, err)
						}
						select {
						case <-ctx.Done():
						case <-time.After(noise.pause):
						}
					}
				})
			}
			began := time.Now()
			loud := e.timesOfADDs(t, other, rounds)
			rate := float64(written.Load()) / time.Since(began).Seconds()
			cancel()
			wg.Wait()
			t.Logf("%s FlowSchemas, %s (%.0f a second, %d failed): %s", queues, noise.name, rate, failed.Load(), quantiles(loud))
			figure.Report(t, fmt.Sprintf("ADD's writes %s FlowSchemas, %s, p50", queues, noise.name), float64(figure.Median(loud))/float64(figure.Median(calm)), "× calm")
		}
	}
}

// timesOfADDs returns the times of a create and a delete of a lease, the calls of an ADD and its DEL,
// in ascending order.
func (e *env) timesOfADDs(t *testing.T, agent client.Client, rounds int) []time.Duration {
	t.Helper()
	var all []time.Duration
	for range rounds {
		l := bound("", "10.3.0.1", func(l *v1alpha1.IPLease) { l.Spec.NodeName = "n2" })
		begin := time.Now()
		check.OK(t, agent.Create(t.Context(), l))
		check.OK(t, agent.Delete(t.Context(), l))
		all = append(all, time.Since(begin))
	}
	slices.Sort(all)
	return all
}

func quantiles(sorted []time.Duration) string {
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	return fmt.Sprintf("p50 %s, p99 %s", round(sorted[len(sorted)/2]), round(sorted[len(sorted)*99/100]))
}

// removeQueues removes the chart's FlowSchemas, and waits until the API server uses another priority
// level for the agents.
func (e *env) removeQueues(t *testing.T) {
	t.Helper()
	var level flowcontrolv1.PriorityLevelConfiguration
	var pod corev1.Pod
	if err := errors.Join(
		e.admin.Get(t.Context(), client.ObjectKey{Name: "fenceline"}, &level),
		e.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "agent-n2"}, &pod),
	); err != nil {
		t.Fatal(err)
	}
	agent, seen := e.watchedAgent(t, &pod)
	for _, name := range []string{"fenceline", "fenceline-events"} {
		check.OK(t, e.admin.Delete(t.Context(), &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	e.eventually(t, "another priority level", func() error {
		if err := agent.List(t.Context(), &v1alpha1.IPPoolList{}); err != nil {
			return err
		}
		seen.mu.Lock()
		defer seen.mu.Unlock()
		if seen.uid == string(level.UID) {
			return errors.New("it is that of the chart")
		}
		return nil
	})
}
