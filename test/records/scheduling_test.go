// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

// testScheduling: with the value scheduling, the controller may label nodes, and pods get an affinity.
func (e *env) testScheduling(t *testing.T) {
	e.helm(t, "upgrade", "fenceline", chart, "--namespace", namespace, "--set", "scheduling=true")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "labelled", Labels: map[string]string{"zone": "a", "pool.fenceline.io/b": "true"}, Annotations: map[string]string{"a": "b"},
	}}
	e.create(t, node)
	patched := func(patch string) error {
		return e.controller.Patch(t.Context(), node.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
	const want = "the controller may change only the labels pool.fenceline.io/*"
	e.eventually(t, "the policy", func() error {
		if err := patched(`{"spec":{"unschedulable":true}}`); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("a cordon: %w", err)
		}
		return nil
	})
	many := `{"metadata":{"labels":{"pool.fenceline.io/a0":"true"`
	for i := range 256 {
		many += fmt.Sprintf(`,"pool.fenceline.io/x%d":"true"`, i)
	}
	for name, c := range map[string]struct{ patch, want string }{
		"writes a label":       {`{"metadata":{"labels":{"pool.fenceline.io/a":"false"}}}`, ""},
		"removes one":          {`{"metadata":{"labels":{"pool.fenceline.io/b":null}}}`, ""},
		"writes no other text": {`{"metadata":{"labels":{"pool.fenceline.io/a":"x"}}}`, `are "true" or "false"`},
		"writes not too many":  {many + `}}}`, "at most 256"},
		"no other label":       {`{"metadata":{"labels":{"zone":"b"}}}`, want},
		"no new label":         {`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, want},
		"no annotation":        {`{"metadata":{"annotations":{"a":null}}}`, want},
		"no taint":             {`{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`, want},
		"no finalizer":         {`{"metadata":{"finalizers":["fenceline.io/x"]}}`, want},
	} {
		t.Run(name, func(t *testing.T) { e.expect(t, patched(c.patch), c.want) })
	}
	if os.Getenv(controlplane.VersionVariable) == "oldest" {
		return // it has no MutatingAdmissionPolicy
	}
	made := func(annotations map[string]string, spec corev1.PodSpec) string {
		spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "placed-", Namespace: "default", Annotations: annotations}, Spec: spec}
		check.OK(t, e.admin.Create(t.Context(), pod, client.DryRunAll))
		return terms(pod)
	}
	const pool, pools = "ipam.fenceline.io/ippool", "ipam.fenceline.io/ippools"
	e.eventually(t, "the affinity", func() error {
		if got := made(map[string]string{pool: `{"ipv4":["a"]}`}, corev1.PodSpec{}); got != "a" {
			return fmt.Errorf("the terms are %q", got)
		}
		return nil
	})
	own := func(terms ...corev1.NodeSelectorTerm) corev1.PodSpec {
		return corev1.PodSpec{Affinity: &corev1.Affinity{
			PodAntiAffinity: &corev1.PodAntiAffinity{},
			NodeAffinity:    &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}},
		}}
	}
	zone := func(name string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: name, Operator: corev1.NodeSelectorOpExists}}}
	}
	field := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}}
	var wide []string
	for i := range 66 {
		wide = append(wide, fmt.Sprintf(`"w%d"`, i))
	}
	for _, row := range []struct {
		name        string
		annotations map[string]string
		spec        corev1.PodSpec
		want        string
	}{
		{"two pools of a family, and one of the other", map[string]string{pool: `{"ipv4": ["a", "b.c"], "ipv6": [ "d" ]}`}, corev1.PodSpec{}, "a+d | b.c+d"},
		{"two interfaces", map[string]string{pools: `[{"interface":"eth0","ipv4":["a"]},{"interface":"net1","ipv4":["b"]}]`, pool: `{"ipv4":["c"]}`}, corev1.PodSpec{}, "a+b"},
		{"Spiderpool's name", map[string]string{"ipam.spidernet.io/ippool": `{"ipv4":["a"]}`}, corev1.PodSpec{}, "a"},
		{"a leftover of Spiderpool", map[string]string{"ipam.spidernet.io/ippools": `[{"ipv4":["x"]}]`, pool: `{"ipv4":["a"]}`}, corev1.PodSpec{}, "a"},
		{"terms that it has", map[string]string{pool: `{"ipv4":["a","b"]}`}, own(zone("x"), zone("y")), "x+a | x+b | y+a | y+b"},
		{"a pod of a DaemonSet", map[string]string{pool: `{"ipv4":["a"]}`}, own(field), "n1+a"},
		{"an affinity without one for nodes", map[string]string{pool: `{"ipv4":["a"]}`}, corev1.PodSpec{Affinity: &corev1.Affinity{}}, "a"},
		{"a pattern", map[string]string{pool: `{"ipv4":["a*"],"ipv6":["b[1]"]}`}, corev1.PodSpec{}, ""},
		{"a pattern for one family", map[string]string{pool: `{"ipv4":["a","b[12]"],"ipv6":["c"]}`}, corev1.PodSpec{}, "c"},
		{"a name of 64 characters", map[string]string{pool: `{"ipv4":["` + strings.Repeat("a", 64) + `"]}`}, corev1.PodSpec{}, ""},
		{"more pools than fit", map[string]string{pool: `{"ipv4":[` + strings.Join(wide, ",") + `],"ipv6":["c"]}`}, corev1.PodSpec{}, "c"},
		{"no JSON", map[string]string{pool: `a, b`}, corev1.PodSpec{}, ""},
		{"IPSubnets come first", map[string]string{pool: `{"ipv4":["a"]}`, "ipam.fenceline.io/subnet": `{"ipv4":["s"]}`}, corev1.PodSpec{}, ""},
		{"a node that is chosen", map[string]string{pool: `{"ipv4":["a"]}`}, corev1.PodSpec{NodeName: "labelled"}, ""},
		{"the node's own network", map[string]string{pool: `{"ipv4":["a"]}`}, corev1.PodSpec{HostNetwork: true}, ""},
	} {
		got := made(row.annotations, row.spec)
		check.Equal(t, got, row.want, "%s: the terms are", row.name)
	}
}

// terms names the pools, keys and nodes of the terms of a pod's node affinity.
func terms(pod *corev1.Pod) string {
	if a := pod.Spec.Affinity; a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	var all []string
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		var parts []string
		for _, f := range term.MatchFields {
			parts = append(parts, f.Values...)
		}
		for _, r := range term.MatchExpressions {
			name, isPool := strings.CutPrefix(r.Key, "pool.fenceline.io/")
			if isPool && fmt.Sprint(r.Operator, r.Values) != "NotIn[false]" {
				name += fmt.Sprint(r.Operator, r.Values)
			}
			parts = append(parts, name)
		}
		all = append(all, strings.Join(parts, "+"))
	}
	return strings.Join(all, " | ")
}
