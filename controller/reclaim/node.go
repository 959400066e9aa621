package reclaim

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// nodeState is what a node's object says about the machine.
type nodeState int

const (
	nodeReady nodeState = iota
	// nodeSilent: not Ready. The machine may be off, or cut off with its pods alive.
	nodeSilent
	// nodeOutOfService: not Ready, and a person says that the machine is off.
	nodeOutOfService
	// nodeGone: there is no Node object, so somebody took the machine out of the cluster.
	nodeGone
)

// asserted says whether the machine is off by somebody's word, not just silent.
func (s nodeState) asserted() bool { return s == nodeOutOfService || s == nodeGone }

// reason must not be asked of a node that is Ready.
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

// stateOf must not be asked of a node that is not known.
func stateOf(node View[corev1.Node]) nodeState {
	switch {
	case node.Object == nil:
		return nodeGone
	case isReady(node.Object):
		return nodeReady
	case isOutOfService(node.Object):
		return nodeOutOfService
	default:
		return nodeSilent
	}
}

// isReady says whether the node reports itself Ready.
func isReady(node *corev1.Node) bool {
	c := readyCondition(node)
	return c != nil && c.Status == corev1.ConditionTrue
}

func readyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// silentSince is when the node stopped being Ready, by the clock of the control
// plane: its taint tells, and before that the condition that it writes of a node
// that reports no more. What a node itself reports has the time of its own clock,
// so until the taint is there it counts from now. A node that never reported is as
// old as its object.
func silentSince(node *corev1.Node, now time.Time) time.Time {
	for _, t := range node.Spec.Taints {
		isSilent := t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
		if isSilent && t.Effect == corev1.TaintEffectNoExecute && t.TimeAdded != nil {
			return t.TimeAdded.Time
		}
	}
	switch c := readyCondition(node); {
	case c == nil:
		return node.CreationTimestamp.Time
	case c.Status == corev1.ConditionUnknown:
		return c.LastTransitionTime.Time
	default:
		return now
	}
}

func isOutOfService(node *corev1.Node) bool {
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeOutOfService {
			return true
		}
	}
	return false
}
