// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestTheLinesThatKeepAPodOffOtherNodes(t *testing.T) {
	some := func(name string) v1alpha1.IPPool {
		p := v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{NodeName: []string{"n1"}}}
		p.Name = name
		return p
	}
	pools := []v1alpha1.IPPool{some("a"), some("b"), some("c"), some(strings.Repeat("l", 64)), {}}
	pools[4].Name = "all"
	served := func(families ...string) whyChoice {
		c := whyChoice{Interface: "eth0"}
		for _, f := range families {
			c.families = append(c.families, strings.Fields(f))
		}
		return c
	}
	refused := whyChoice{Interface: "eth0", Error: "no pool"}
	for _, row := range []struct {
		name    string
		choices []whyChoice
		want    string
	}{
		{"each node serves it", []whyChoice{served("a")}, ""},
		{"no node serves it", []whyChoice{refused}, ""},
		{"one of two", []whyChoice{served("a"), refused}, "a"},
		{"two racks, and a third", []whyChoice{served("a"), served("b"), refused}, "a | b"},
		{"both families", []whyChoice{served("a b", "c"), refused}, "a+c | b+c"},
		{"a pool for all nodes", []whyChoice{served("a all", "c"), refused}, "c"},
		{"a name that is no label", []whyChoice{served(strings.Repeat("l", 64)), refused}, ""},
	} {
		terms := placing(row.choices, pools)
		var all []string
		for _, term := range terms {
			var names []string
			for _, r := range term.MatchExpressions {
				names = append(names, strings.TrimPrefix(r.Key, v1alpha1.LabelPool))
			}
			all = append(all, strings.Join(names, "+"))
		}
		check.Equal(t, strings.Join(all, " | "), row.want, "%s: the terms are", row.name)
	}
	var out bytes.Buffer
	whyAnswer{Affinity: placing([]whyChoice{served("a"), refused}, pools)}.write(paper{printable{&out}, 0, nil})
	check.Says(t, out.String(), "affinity:\n  nodeAffinity:\n    requiredDuringSchedulingIgnoredDuringExecution:\n      nodeSelectorTerms:\n      - matchExpressions:\n        - key: pool.fenceline.io/a\n          operator: NotIn\n          values:\n          - \"false\"\n")
}
