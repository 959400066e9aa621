// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/test/check"
)

// agentPod is the agent's pod of agentOn, changed.
func agentPod(node string, change func(*podview.Pod)) client.Object {
	pod := agentOn(node)[1].(*podview.Pod)
	change(pod)
	return pod
}

// TestWhoMayVerify: the lease's holder is on n1.
func TestWhoMayVerify(t *testing.T) {
	ready, silent := node(corev1.ConditionTrue), node(corev1.ConditionUnknown)
	agent := func(*podview.Pod) {}
	for _, row := range []struct {
		name  string
		world []client.Object
		want  []string
	}{
		{"the holder's own node first", objects(agentOn("n1"), agentOn("n2")), []string{"n1", "n2"}},
		{"not while it is silent", objects(silent, agentPod("n1", agent), agentOn("n2")), []string{"n2"}},
		{"not without an agent", objects(ready, agentOn("n2")), []string{"n2"}},
		{"not with one that is not Ready", objects(ready, agentPod("n1", func(p *podview.Pod) { p.Status.Conditions = nil }), agentOn("n2")), []string{"n2"}},
		{"another pod is no agent", objects(ready, agentPod("n1", func(p *podview.Pod) { p.Labels = nil }), agentOn("n2")), []string{"n2"}},
		{"an agent elsewhere is none", objects(ready, agentPod("n1", func(p *podview.Pod) { p.Namespace = "default" }), agentOn("n2")), []string{"n2"}},
		{"one without a node is passed over", objects(agentOn("n2"), agentPod("", agent)), []string{"n2"}},
		{"a node whose agent is replaced is asked once",
			objects(agentOn("n2"), agentPod("n2", func(p *podview.Pod) { p.Name = "agent-new" })), []string{"n2"}},
		{"nobody", nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			world := objects(poolObject(), leaseObject(), row.world)
			b := between(t, world, world)
			all, err := b.reconciler.verifiers(t.Context(), leaseObject())
			check.OK(t, err)
			if got := slices.Collect(all); !slices.Equal(got, row.want) {
				t.Errorf("verifiers %v, want %v", got, row.want)
			}
			first := ""
			if len(row.want) > 0 {
				first = row.want[0]
			}
			if got, err := b.reconciler.firstVerifier(t.Context(), leaseObject()); got != first || err != nil {
				t.Errorf("the first is %q (%v), want %q", got, err, first)
			}
		})
	}
}
