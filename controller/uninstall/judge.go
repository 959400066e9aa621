// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/podview"
)

// ErrLeasesExist means that addresses are in use or kept.
var ErrLeasesExist = errors.New("leases exist")

// refusal returns the error that refuses to uninstall Fenceline while leases exist, with the remedy
// for each state, or nil. Warm leases do not count: no pod has or will get their addresses.
func refusal(leases []v1alpha1.IPLease, namespace string) error {
	n := map[v1alpha1.LeaseState]int{}
	for i := range leases {
		n[leases[i].Spec.State]++
	}
	var parts []string
	for _, state := range []struct {
		name v1alpha1.LeaseState
		end  string
	}{
		{v1alpha1.StateBound, "delete their pods"},
		{v1alpha1.StateRetained, "delete the leases that are no longer needed"},
		{v1alpha1.StateQuarantined, "wait for their verification; spec.message gives the reason"},
	} {
		if n[state.name] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s (%s)", n[state.name], state.name, state.end))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s; to delete all leases, even if pods use the addresses: kubectl annotate namespace %s %s=, then uninstall again; "+
		"install another network configuration first: Kubernetes evicts the pods of a node that has none",
		ErrLeasesExist, strings.Join(parts, ", "), namespace, v1alpha1.AnnotationForceDelete)
}

// running returns the names of the pods that have not ended. It skips pods on silent nodes.
func running(pods []podview.Pod, silent map[string]bool) string {
	var names []string
	for i := range pods {
		if !silent[pods[i].Spec.NodeName] {
			names = append(names, pods[i].Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// unfinished returns the nodes on which the removers have not finished, or "". A remover is Ready
// when it has finished. Silent nodes are skipped.
func unfinished(set *appsv1.DaemonSet, pods []podview.Pod, silent map[string]bool) string {
	wanted := int(set.Status.DesiredNumberScheduled)
	if set.Status.ObservedGeneration < set.Generation || len(pods) < wanted {
		return fmt.Sprintf("removers on %d nodes; %d exist", wanted, len(pods))
	}
	var nodes []string
	for i := range pods {
		if !silent[pods[i].Spec.NodeName] && !agents.IsAlive(&pods[i]) {
			nodes = append(nodes, pods[i].Spec.NodeName)
		}
	}
	if len(nodes) == 0 {
		return ""
	}
	slices.Sort(nodes)
	return "nodes " + strings.Join(nodes, ", ")
}

// isSilent reports whether the kubelet of a node does not report. A kubelet that says that its node
// is not Ready still ends and starts pods on the host's network. That is the state of every node
// whose only network configuration the remover has removed.
func isSilent(node *corev1.Node) bool {
	c := agents.ReadyCondition(node)
	return c == nil || c.Status == corev1.ConditionUnknown
}
