// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
)

// TestWhatOfAnAgentWakesPools: an agent may wait for its node for long, and which
// nodes have one is in the status of the pools that serve some nodes only.
func TestWhatOfAnAgentWakesPools(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*podview.Pod)
		want   bool
	}{
		{"nothing that a pool tells of", func(p *podview.Pod) { p.ResourceVersion = "2" }, false},
		{"its index", func(p *podview.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationAgentIndex: "1"} }, true},
		{"its node", func(p *podview.Pod) { p.Spec.NodeName = "n1" }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			was, is := &podview.Pod{}, &podview.Pod{}
			row.change(is)
			if got := agentChanges().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != row.want {
				t.Errorf("passed: %t", got)
			}
		})
	}
}
