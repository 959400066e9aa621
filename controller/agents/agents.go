// SPDX-License-Identifier: Apache-2.0

// Package agents finds the node agents by their pods: the nodes with a working agent, and the share
// of every pool that each agent tries first.
package agents

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/controller/podview"
)

// The labels of Fenceline's objects.
const (
	nameLabel, nameValue = "app.kubernetes.io/name", "fenceline"
	componentLabel       = "app.kubernetes.io/component"
)

// Labels returns those of the objects of a component, such as agent or controller.
func Labels(component string) client.MatchingLabels {
	return client.MatchingLabels{nameLabel: nameValue, componentLabel: component}
}

// ByNode is the name of the cache's index over the agents' pods by node.
const ByNode = "agent.node"

// NodeKeys returns the keys of ByNode. Pods that are not agents have none.
func NodeKeys(pod *podview.Pod) []string {
	if !IsAgent(pod) || pod.Spec.NodeName == "" {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

// IsAgent reports whether a pod in Fenceline's namespace is an agent.
func IsAgent(pod *podview.Pod) bool {
	return pod.Labels[nameLabel] == nameValue && pod.Labels[componentLabel] == "agent"
}

// IsAlive reports whether an agent works: it is Ready and not being deleted.
func IsAlive(pod *podview.Pod) bool {
	isReady := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.StatusOrEmpty().Conditions, isReady)
}

// WorksOn reports whether an agent in the namespace works on the node. The reader must have the index
// ByNode.
func WorksOn(ctx context.Context, reader client.Reader, namespace, node string) (bool, error) {
	var pods podview.PodList
	err := reader.List(ctx, &pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy, client.MatchingFields{ByNode: node})
	if err != nil {
		return false, fmt.Errorf("list agents of node %s in namespace %s: %w", node, namespace, err)
	}
	return AnyAlive(pods.Items), nil
}

// AnyAlive reports whether one of the pods works.
func AnyAlive(pods []podview.Pod) bool {
	return slices.ContainsFunc(pods, func(p podview.Pod) bool { return IsAlive(&p) })
}

// List returns the agents' pods in the namespace. The caller must not change them, because they may
// belong to the cache.
func List(ctx context.Context, reader client.Reader, namespace string) ([]podview.Pod, error) {
	return ListOf(ctx, reader, namespace, "agent")
}

// ListOf is List for the pods of any component.
func ListOf(ctx context.Context, reader client.Reader, namespace, component string) ([]podview.Pod, error) {
	var pods podview.PodList
	err := reader.List(ctx, &pods, client.InNamespace(namespace), client.UnsafeDisableDeepCopy, Labels(component))
	if err != nil {
		return nil, fmt.Errorf("list the pods of the %s in namespace %s: %w", component, namespace, err)
	}
	return pods.Items, nil
}

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
