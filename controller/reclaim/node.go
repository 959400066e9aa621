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

// silentSince is when the node stopped being Ready; a node that never reported
// is as old as its object.
func silentSince(node *corev1.Node) time.Time {
	if c := readyCondition(node); c != nil {
		return c.LastTransitionTime.Time
	}
	return node.CreationTimestamp.Time
}

func isOutOfService(node *corev1.Node) bool {
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeOutOfService {
			return true
		}
	}
	return false
}
