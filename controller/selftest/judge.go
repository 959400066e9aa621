// SPDX-License-Identifier: Apache-2.0

// Package selftest is the test of an installation, which helm test runs: two pods check themselves from inside, and a
// judge outside waits for both.
package selftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// podCount is the number of replicas of the chart's Deployment.
	podCount = 2
	// pause is the time between two looks at the pods.
	pause = time.Second
)

var errNoPool = errors.New("there is no pool, so no pod gets an address: make one, as docs/pools.md says, and run helm test again")

// Judge judges the pods of the test.
type Judge struct {
	// Client reads from the API server.
	Client    client.Client
	Namespace string
	// Out gets a line for each address.
	Out io.Writer
}

// Run returns nil when both pods have passed. Without a pool it fails at once, otherwise when ctx ends, with what each
// pod lacks.
func (j Judge) Run(ctx context.Context) error {
	var pools v1alpha1.IPPoolList
	if err := j.Client.List(ctx, &pools); err != nil {
		return fmt.Errorf("list pools: %w", err)
	}
	if len(pools.Items) == 0 {
		return errNoPool
	}
	var pods []corev1.Pod
	var lacks error
	err := wait.PollUntilContextCancel(ctx, pause, true, func(ctx context.Context) (bool, error) {
		found, err := podsOf(ctx, j.Client, j.Namespace)
		if err == nil {
			pods = found
			err = j.lacks(ctx, pods)
		}
		if ctx.Err() == nil {
			lacks = err
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the pods of the test did not pass in time:\n%w", cmp.Or(lacks, err))
	}
	return j.tell(ctx, pods)
}

// lacks returns what the pods still lack, or nil.
func (j Judge) lacks(ctx context.Context, pods []corev1.Pod) error {
	var all []error
	if len(pods) != podCount {
		all = append(all, fmt.Errorf("%d pods exist, want %d", len(pods), podCount))
	}
	for i := range pods {
		if isReady(&pods[i]) {
			continue
		}
		why, err := j.why(ctx, &pods[i])
		if err != nil {
			return err
		}
		all = append(all, fmt.Errorf("pod %s on node %s: %s", pods[i].Name, cmp.Or(pods[i].Spec.NodeName, "(none)"), why))
	}
	return errors.Join(all...)
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// why returns the last warning about a pod: the refusal of its ADD, or what its check has said.
func (j Judge) why(ctx context.Context, pod *corev1.Pod) (string, error) {
	var events corev1.EventList
	if err := j.Client.List(ctx, &events, client.InNamespace(j.Namespace), client.MatchingFields{"involvedObject.name": pod.Name}); err != nil {
		return "", fmt.Errorf("list the events of pod %s: %w", pod.Name, err)
	}
	last, said := time.Time{}, ""
	for i := range events.Items {
		e := &events.Items[i]
		if at := latest(e); e.Type == corev1.EventTypeWarning && !at.Before(last) {
			last, said = at, e.Reason+": "+strings.TrimSpace(e.Message)
		}
	}
	return cmp.Or(said, "it is "+string(pod.Status.Phase)), nil
}

// latest returns the time at which an event was last seen.
func latest(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	}
	return e.EventTime.Time
}

// tell tells the addresses of the pods, and which guards were not tested.
func (j Judge) tell(ctx context.Context, pods []corev1.Pod) error {
	leases, err := leasesOf(ctx, j.Client, j.Namespace)
	if err != nil {
		return err
	}
	nodes := map[string]bool{}
	for _, pod := range pods {
		nodes[pod.Spec.NodeName] = true
		for _, l := range leases[pod.Name] {
			untested, err := whyUntested(ctx, j.Client, &l)
			if err != nil {
				return err
			}
			guard := "guard drops foreign frames"
			if untested != "" {
				guard = "guard not tested: " + untested
			}
			fmt.Fprintf(j.Out, "pod %s on node %s has %s of pool %s; %s; other pod and DNS answer\n", pod.Name, pod.Spec.NodeName, l.Spec.Address, l.Spec.Pool, guard)
		}
	}
	if len(nodes) < podCount {
		fmt.Fprintln(j.Out, "both pods run on one node, so the way between nodes was not tested")
	}
	return nil
}
