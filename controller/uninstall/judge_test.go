// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/test/check"
)

func TestRefusal(t *testing.T) {
	in := func(states ...v1alpha1.LeaseState) (leases []v1alpha1.IPLease) {
		for _, s := range states {
			leases = append(leases, v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{State: s}})
		}
		return leases
	}
	for name, c := range map[string]struct {
		leases []v1alpha1.IPLease
		says   string
	}{
		"without leases nothing is refused":    {},
		"an address in use":                    {in(v1alpha1.StateBound), "1 Bound (delete their pods);"},
		"an address that is kept":              {in(v1alpha1.StateRetained), "1 Retained (delete the leases that are no longer needed);"},
		"an address that nobody has proven":    {in(v1alpha1.StateQuarantined), "1 Quarantined (wait for their verification"},
		"an address that is kept ready is not": {leases: in(v1alpha1.StateWarm)},
		"but one in use beside it":             {in(v1alpha1.StateWarm, v1alpha1.StateBound), "leases exist: 1 Bound (delete their pods);"},
		"all of them, those in use come first": {in(v1alpha1.StateRetained, v1alpha1.StateBound, v1alpha1.StateBound), "2 Bound (delete their pods), 1 Retained"},
		"the remedy warns of its effect":       {in(v1alpha1.StateBound), "install another network configuration first: Kubernetes evicts the pods of a node that has none"},
	} {
		t.Run(name, func(t *testing.T) {
			err := refusal(c.leases, "fenceline-system")
			switch {
			case c.says == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.says != "" && (!errors.Is(err, ErrLeasesExist) || !strings.Contains(err.Error(), c.says)):
				t.Errorf("says %v, want %q", err, c.says)
			}
		})
	}
}

func pod(node string, ready corev1.ConditionStatus) podview.Pod {
	return podview.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-" + node}, Spec: podview.Spec{NodeName: node},
		Status: &podview.Status{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

func TestWhatIsWaitedFor(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	set := func(generation, observed int64, wanted int32) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Generation: generation},
			Status:     appsv1.DaemonSetStatus{ObservedGeneration: observed, DesiredNumberScheduled: wanted},
		}
	}
	silent := map[string]bool{"off": true}
	for name, c := range map[string]struct {
		got, want string
	}{
		"agents that run":                            {running([]podview.Pod{pod("n2", yes), pod("n1", no)}, silent), "pod-n1, pod-n2"},
		"an agent of a silent node is not":           {running([]podview.Pod{pod("off", yes)}, silent), ""},
		"removers that nobody has counted":           {unfinished(set(1, 0, 0), nil, silent), "removers on 0 nodes; 0 exist"},
		"removers that are missing":                  {unfinished(set(1, 1, 2), []podview.Pod{pod("n1", yes)}, silent), "removers on 2 nodes; 1 exist"},
		"removers that work":                         {unfinished(set(1, 1, 2), []podview.Pod{pod("n1", yes), pod("n2", no)}, silent), "nodes n2"},
		"removers that are done":                     {unfinished(set(1, 1, 2), []podview.Pod{pod("n1", yes), pod("n2", yes)}, silent), ""},
		"a remover of a silent node is not":          {unfinished(set(1, 1, 2), []podview.Pod{pod("n1", yes), pod("off", no)}, silent), ""},
		"a cluster without a node for them has none": {unfinished(set(1, 1, 0), nil, nil), ""},
	} {
		t.Run(name, func(t *testing.T) { check.Equal(t, c.got, c.want, "waits for") })
	}
}

func TestOnlyANodeWhoseKubeletDoesNotReportIsSilent(t *testing.T) {
	for name, c := range map[string]struct {
		conditions []corev1.NodeCondition
		silent     bool
	}{
		"a node that is Ready":                               {[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}, false},
		"a node that has lost its only network, and says so": {[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}, false},
		"a node that has fallen silent":                      {[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}, true},
		"a node that never reported":                         {[]corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{Status: corev1.NodeStatus{Conditions: c.conditions}}
			check.Equal(t, isSilent(node), c.silent, "silent")
		})
	}
}
