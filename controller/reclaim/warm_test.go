// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/test/check"
)

// warmWorld has a Warm lease of n1, which has no agent, and another node that has one.
func warmWorld() []client.Object {
	return objects(poolObject(), leaseObject(inState(v1alpha1.StateWarm), holderMissing), node(corev1.ConditionTrue), agentOn("n2"))
}

func TestAWarmLeaseDoesNotOutlastItsNodesAgent(t *testing.T) {
	b := between(t, warmWorld(), warmWorld())
	if result, err := b.look(); err != nil || result.RequeueAfter != warmGrace {
		t.Fatalf("the first look: %+v, %v", result, err)
	}
	b.clock.Step(warmGrace - time.Second)
	if result, err := b.look(); err != nil || result.RequeueAfter != time.Second {
		t.Fatalf("a second before: %+v, %v", result, err)
	}
	b.clock.Step(time.Second)
	if _, err := b.look(); err != nil {
		t.Fatal(err)
	}
	spec := b.lease().Spec
	if spec.State != v1alpha1.StateQuarantined || spec.Reason != v1alpha1.ReasonAgentGone || spec.NodeName != "n2" {
		t.Errorf("the lease is %+v", spec)
	}
}

func TestAnAgentThatComesBackKeepsItsWarmLeases(t *testing.T) {
	world := warmWorld()
	b := between(t, world, world)
	if _, err := b.look(); err != nil {
		t.Fatal(err)
	}
	agent := agentPod("n1", func(*podview.Pod) {})
	check.OK(t, b.cached.Create(t.Context(), agent))
	woken := b.reconciler.leasesOfPod(t.Context(), agent)
	if want := (ctrl.Request{NamespacedName: types.NamespacedName{Name: "10.6.0.10"}}); len(woken) != 1 || woken[0] != want {
		t.Errorf("the agent wakes %v", woken)
	}
	b.clock.Step(warmGrace)
	if result, err := b.look(); err != nil || !result.IsZero() {
		t.Errorf("with its agent: %+v, %v", result, err)
	}
	check.OK(t, b.cached.Delete(t.Context(), agent))
	if result, err := b.look(); err != nil || result.RequeueAfter != warmGrace {
		t.Errorf("once it has gone again: %+v, %v", result, err)
	}
}
