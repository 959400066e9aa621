// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/loop"
	"github.com/fenceline/fenceline/test/check"
)

// TestLeasesThatANodeWakes: the loss of a zone has an event for each node and for each agent, so each wakes only the
// leases that it is about, and not all that are Quarantined.
func TestLeasesThatANodeWakes(t *testing.T) {
	on := func(name, node string) *v1alpha1.IPLease {
		l := leaseObject()
		l.Name, l.Spec.NodeName = name, node
		return l
	}
	takenFrom := func(name, node, verifier string) *v1alpha1.IPLease {
		l := on(name, node)
		l.Spec = quarantined(l.Spec, v1alpha1.ReasonNodeGone, verifier, noon())
		return l
	}
	leases := []client.Object{
		on("bound on n1", "n1"), on("bound on n2", "n2"), takenFrom("from n1", "n1", "n2"), takenFrom("by n1", "n2", "n1"),
		takenFrom("by n2", "n3", "n2"), takenFrom("by nobody", "n3", ""), takenFrom("by n4, which is gone", "n3", "n4"),
	}
	own := []string{"bound on n1", "by n1", "from n1"}
	lost := []string{"by n4, which is gone", "by nobody"}
	for _, row := range []struct {
		name string
		// ready is that of the node n1, and agent that of its agent, after the event.
		ready, agent corev1.ConditionStatus
		ofAgent      bool
		// appears: leases that wait for any verifier are woken as well.
		appears bool
	}{
		{"the node ends", corev1.ConditionUnknown, corev1.ConditionTrue, false, false},
		{"the agent ends", corev1.ConditionTrue, corev1.ConditionFalse, true, false},
		{"the agent ends after its node", corev1.ConditionUnknown, corev1.ConditionFalse, true, false},
		{"the node appears before its agent", corev1.ConditionTrue, corev1.ConditionFalse, false, false},
		{"the node appears after its agent", corev1.ConditionTrue, corev1.ConditionTrue, false, true},
		{"the agent appears", corev1.ConditionTrue, corev1.ConditionTrue, true, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			n1 := agentOn("n1")
			n1[0].(*corev1.Node).Status.Conditions[0].Status = row.ready
			n1[1].(*podview.Pod).Status.Conditions[0].Status = row.agent
			w := woken{Reader{Cache: view(t, objects(leases, n1, agentOn("n2"))).Build(), Namespace: namespace}, loop.NewWake()}
			find := w.ofNode
			event := client.Object(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
			if row.ofAgent {
				find, event = w.ofPod, n1[1]
			}
			check.List(t, names(find(context.Background(), event)), own, "woken:")
			check.Equal(t, len(w.appeared) == 1, row.appears, "a verifier appeared:")
			waiting := lost
			if row.ready != corev1.ConditionTrue || row.agent != corev1.ConditionTrue {
				waiting = append([]string{"by n1"}, lost...)
			}
			check.List(t, names(w.ofAppearance(context.Background())), waiting, "waiting for a verifier:")
		})
	}
}

func names(requests []reconcile.Request) (names []string) {
	for _, r := range requests {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}
