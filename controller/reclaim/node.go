// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
)

// nodeState is the state of a machine, by its Node object.
type nodeState int

const (
	nodeReady nodeState = iota
	// nodeSilent means not Ready. The machine may be off, or cut off with its pods alive.
	nodeSilent
	// nodeOutOfService means not Ready, and an operator asserts that the machine is off.
	nodeOutOfService
	// nodeGone means that there is no Node object: the machine was taken out of the cluster.
	nodeGone
)

// asserted reports whether an operator asserts that the machine is off.
func (s nodeState) asserted() bool { return s == nodeOutOfService || s == nodeGone }

// reason returns the reason of a reclaim from a node in this state. The node must not be Ready.
func (s nodeState) reason() v1alpha1.LeaseReason {
	switch s {
	case nodeGone:
		return v1alpha1.ReasonNodeGone
	case nodeOutOfService:
		return v1alpha1.ReasonOutOfService
	default:
		return v1alpha1.ReasonNodeUnreachable
	}
}

// stateOf returns the state of a node, which must be known.
func stateOf(node View[corev1.Node]) nodeState {
	switch {
	case node.Object == nil:
		return nodeGone
	case agents.IsReady(node.Object):
		return nodeReady
	case isOutOfService(node.Object):
		return nodeOutOfService
	default:
		return nodeSilent
	}
}

// silentSince returns when the node stopped being Ready, by the clock of the control plane:
//   - the time of the control plane's taint;
//   - without the taint, the time of a Ready condition of Unknown, which the control plane writes;
//   - now, if the node itself reports that it is not Ready, because its clock may be wrong;
//   - the creation of the Node object, if the node never reported.
func silentSince(node *corev1.Node, now time.Time) time.Time {
	for _, t := range node.Spec.Taints {
		isSilent := t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
		if isSilent && t.Effect == corev1.TaintEffectNoExecute && t.TimeAdded != nil {
			return t.TimeAdded.Time
		}
	}
	switch c := agents.ReadyCondition(node); {
	case c == nil:
		return node.CreationTimestamp.Time
	case c.Status == corev1.ConditionUnknown:
		return c.LastTransitionTime.Time
	default:
		return now
	}
}

func isOutOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}
