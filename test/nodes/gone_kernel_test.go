// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/nodes"
)

// restarted makes a pod whose kubelet starts another sandbox when one dies.
func restarted(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyAlways }

// stateOf describes a lease; it is empty if there is none.
func stateOf(ctx context.Context, c *nodes.Cluster, s *nodes.Sandbox) (string, error) {
	l, err := c.Lease(ctx, s.Addr)
	return strings.TrimSpace(fmt.Sprint(l.Spec.State, " ", l.Spec.Reason)), client.IgnoreNotFound(err)
}

// countEvents counts the events of an object that have a reason, and a text in their note.
func countEvents(ctx context.Context, c *nodes.Cluster, kind, name, reason, text string) (count int, err error) {
	told := &eventsv1.EventList{}
	err = c.List(ctx, told)
	for _, e := range told.Items {
		if e.Reason == reason && e.Regarding.Kind == kind && e.Regarding.Name == name && strings.Contains(e.Note, text) {
			count++
		}
	}
	return count, err
}

// eventOf returns an error unless there is such an event.
func eventOf(ctx context.Context, c *nodes.Cluster, kind, name, reason, text string) error {
	count, err := countEvents(ctx, c, kind, name, reason, text)
	if err == nil && count == 0 {
		err = fmt.Errorf("no event %s of %s %s with %q", reason, kind, name, text)
	}
	return err
}

// The parent of a running pod is deleted and made again. The pod loses its interface, which events
// report, and keeps its address until it ends. New pods get the other addresses.
func TestAParentThatIsMadeAgainTakesNoAddressFromARunningPod(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 2)
	n := c.Nodes[0]
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.3")
	old := started(ctx, t, n, "old", restarted)

	check.OK(t, n.RemakeParent())
	c.Eventually(t, "the events of pod and node", func() error {
		for _, of := range [][2]string{{"Pod", "old"}, {"Node", n.Name}} {
			if count, err := countEvents(ctx, c, of[0], of[1], "InterfaceGone", "was removed or made again"); err != nil || count != 1 {
				return fmt.Errorf("%d events about %v: %w", count, of, err)
			}
		}
		return nil
	})
	young := started(ctx, t, n, "young", nil)
	refused := empty(ctx, t, c.Nodes[1], "elsewhere", nil)
	soon, end := context.WithTimeout(ctx, nodes.Limit/10)
	defer end()
	if err := refused.Add(soon); err == nil {
		t.Fatalf("a third pod has %s, while %s and %s live", refused.Addr, old.Addr, young.Addr)
	}
	check.OK(t, n.KillAgent())
	check.OK(t, n.AwaitAgent(ctx))
	state, err := stateOf(ctx, c, old)
	check.That(t, err == nil && state == "Bound", "the lease of the old pod is %q: %v", state, err)

	check.OK(t, c.ForgetPod(ctx, old.Pod))
	check.OK(t, old.End(ctx))
	third := check.Value(c.Nodes[1].Begin(ctx, refused.Pod))(t)
	check.Equal(t, third.Addr, old.Addr, "the third pod has")
	for _, s := range []*nodes.Sandbox{young, third} {
		check.OK(t, c.ForgetPod(ctx, s.Pod))
		check.OK(t, s.End(ctx))
	}
	check.OK(t, refused.End(ctx))
	c.Settles(ctx, t)
}
