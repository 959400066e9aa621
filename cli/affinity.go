// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// mostTerms bounds the terms of an affinity, as the policy fenceline-scheduling does.
const mostTerms = 64

// placing returns the terms of node affinity that keep a pod off the nodes whose choice is an error. It is nil if no
// node, or each node, serves the pod. A list of pools does not count if one of them serves all nodes.
func placing(choices []whyChoice, pools []v1alpha1.IPPool) (terms []corev1.NodeSelectorTerm) {
	var lists [][]string // of each family of each interface, the pools that serve it on some node
	var of []string
	refused := false
	for _, c := range choices {
		refused = refused || c.Error != ""
		for i, names := range c.families {
			key := fmt.Sprint(c.Interface, i)
			at := slices.Index(of, key)
			if at < 0 {
				at, of, lists = len(of), append(of, key), append(lists, nil)
			}
			for _, name := range names {
				if !slices.Contains(lists[at], name) {
					lists[at] = append(lists[at], name)
				}
			}
		}
	}
	isLabel := func(name string) bool {
		return slices.ContainsFunc(pools, func(p v1alpha1.IPPool) bool {
			return p.Name == name && p.Spec.IPSubnet == "" && (len(p.Spec.NodeName) > 0 || p.Spec.NodeAffinity != nil) &&
				len(validation.IsQualifiedName(v1alpha1.LabelPool+name)) == 0
		})
	}
	for _, names := range lists {
		if !refused || slices.ContainsFunc(names, func(name string) bool { return !isLabel(name) }) || max(1, len(terms))*len(names) > mostTerms {
			continue
		}
		before := terms
		if terms = nil; before == nil {
			before = []corev1.NodeSelectorTerm{{}}
		}
		for _, t := range before {
			for _, name := range names {
				one := corev1.NodeSelectorRequirement{Key: v1alpha1.LabelPool + name, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"false"}}
				terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: append(slices.Clone(t.MatchExpressions), one)})
			}
		}
	}
	return terms
}

// writePlacing prints the lines to paste into the spec of a pod.
func writePlacing(w paper, terms []corev1.NodeSelectorTerm) {
	if len(terms) == 0 {
		return
	}
	lines, err := yaml.Marshal(map[string]*corev1.Affinity{"affinity": {NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}})
	if err == nil {
		fmt.Fprintf(w, "\nThese lines in the spec of the pod keep it off the other nodes, if the chart has scheduling: true:\n%s", lines)
	}
}
