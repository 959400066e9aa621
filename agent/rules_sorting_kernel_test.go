// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// The three examples of the documents; each names the pool first that comes last.
func (m *machine) sorting(t *testing.T) {
	podAffinity := func(p *v1alpha1.IPPool) { p.Spec.PodAffinity = selector("app", "web") }
	nodeName := func(p *v1alpha1.IPPool) { p.Spec.NodeName = []string{"n1"} }
	namespaceName := func(p *v1alpha1.IPPool) { p.Spec.NamespaceName = []string{"shop"} }
	multusName := func(p *v1alpha1.IPPool) { p.Spec.MultusName = []string{"kube-system/macvlan"} }
	m.pool(t, "sort-none", 40)
	m.pool(t, "sort-pod-node", 41, podAffinity, nodeName)
	m.pool(t, "sort-pod", 42, podAffinity)
	m.pool(t, "sort-node-namespace", 43, nodeName, namespaceName)
	m.pool(t, "sort-pod-namespace-multus", 44, podAffinity, namespaceName, multusName)
	for _, c := range []struct {
		rule   string
		listed []string
		want   string
	}{
		{"podAffinity and nodeName before podAffinity", []string{"sort-pod", "sort-pod-node"}, "10.70.41."},
		{"podAffinity before nodeName and namespaceName", []string{"sort-node-namespace", "sort-pod"}, "10.70.42."},
		{"podAffinity and nodeName before podAffinity, namespaceName and multusName", []string{"sort-pod-namespace-multus", "sort-pod-node"}, "10.70.41."},
		{"nodeName and namespaceName before nothing", []string{"sort-none", "sort-node-namespace"}, "10.70.43."},
	} {
		t.Run(c.rule, func(t *testing.T) {
			m.gets(t, m.sandbox(from(c.listed...), labelled, saying("v1.multus-cni.io/default-network", "macvlan")), c.want)
		})
	}
}

func selector(k, v string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
}
