// SPDX-License-Identifier: Apache-2.0

package agents

import corev1 "k8s.io/api/core/v1"

// ReadyCondition returns the condition Ready of a node, or nil.
func ReadyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// IsReady reports whether the condition Ready of a node is true.
func IsReady(node *corev1.Node) bool {
	c := ReadyCondition(node)
	return c != nil && c.Status == corev1.ConditionTrue
}
