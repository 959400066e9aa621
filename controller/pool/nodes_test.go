// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestLabelsOfANode(t *testing.T) {
	named := func(name string, edit func(*v1alpha1.IPPoolSpec)) v1alpha1.IPPool {
		p := subnetPool(name, "10.0.0.0/24", 0)
		edit(&p.Spec)
		return p
	}
	onRack := func(rack string) func(*v1alpha1.IPPoolSpec) {
		return func(s *v1alpha1.IPPoolSpec) {
			s.NodeAffinity = &metav1.LabelSelector{MatchLabels: map[string]string{"rack": rack}}
		}
	}
	onNodes := func(names ...string) func(*v1alpha1.IPPoolSpec) {
		return func(s *v1alpha1.IPPoolSpec) { onRack("r2")(s); s.NodeName = names }
	}
	ofSubnet := named("app", onRack("r1"))
	ofSubnet.Spec.IPSubnet = "s"
	ended := named("ended", onRack("r1"))
	ended.DeletionTimestamp = &metav1.Time{}
	var many []v1alpha1.IPPool
	for i := range mostLabels + 1 {
		many = append(many, named(fmt.Sprintf("p%03d", i), onRack("r1")))
	}
	long := strings.Repeat("a", 63)
	for _, row := range []struct {
		name  string
		pools []v1alpha1.IPPool
		has   string // labels of the node, beside rack=r1
		holds string // the pool that has leases on the node
		want  string
		waits bool
	}{
		{"a pool for all nodes needs none", []v1alpha1.IPPool{named("all", func(*v1alpha1.IPPoolSpec) {})}, "", "", "{}", false},
		{"one that serves it, and one that does not", []v1alpha1.IPPool{named("a", onRack("r1")), named("b", onRack("r2"))}, "", "", `{"pool.fenceline.io/a":"true","pool.fenceline.io/b":"false"}`, false},
		{"nodeName decides", []v1alpha1.IPPool{named("a", onNodes("n1")), named("b", onNodes("n2"))}, "", "", `{"pool.fenceline.io/a":"true","pool.fenceline.io/b":"false"}`, false},
		{"nothing has changed", []v1alpha1.IPPool{named("a", onRack("r1"))}, "pool.fenceline.io/a=true", "", "{}", false},
		{"a wrong value, and those of pools that are gone", []v1alpha1.IPPool{named("a", onRack("r1")), ended}, "pool.fenceline.io/a=x,pool.fenceline.io/b=true,pool.fenceline.io/ended=true", "",
			`{"pool.fenceline.io/a":"true","pool.fenceline.io/b":null,"pool.fenceline.io/ended":null}`, false},
		{"a pool of an IPSubnet, and a name of 64 characters", []v1alpha1.IPPool{ofSubnet, named(long, onRack("r1")), named(long+"b", onRack("r1"))}, "", "", `{"pool.fenceline.io/` + long + `":"true"}`, false},
		{"a pool leaves the node while pods have its addresses", []v1alpha1.IPPool{named("a", onRack("r2"))}, "pool.fenceline.io/a=true", "a", "{}", true},
		{"the pods are gone", []v1alpha1.IPPool{named("a", onRack("r2"))}, "pool.fenceline.io/a=true", "b", `{"pool.fenceline.io/a":"false"}`, false},
		{"a node without the label, with pods", []v1alpha1.IPPool{named("a", onRack("r2"))}, "", "a", "{}", true},
		{"a wrong value, with pods", []v1alpha1.IPPool{named("a", onRack("r2"))}, "pool.fenceline.io/a=x", "a", `{"pool.fenceline.io/a":null}`, true},
		{"a pool for all nodes now, with pods", []v1alpha1.IPPool{named("a", func(*v1alpha1.IPPoolSpec) {})}, "pool.fenceline.io/a=true,pool.fenceline.io/b=true", "a", `{"pool.fenceline.io/b":null}`, true},
		{"more pools than a node has labels", many, "pool.fenceline.io/p128=true", "", "", false},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"rack": "r1"}}}
		for _, l := range strings.FieldsFunc(row.has, func(c rune) bool { return c == ',' }) {
			key, value, _ := strings.Cut(l, "=")
			node.Labels[key] = value
		}
		got, waits := labelChanges(node, labelledPools(row.pools), func(pool string) bool { return pool == row.holds })
		text := string(check.Value(json.Marshal(got))(t))
		if row.want == "" {
			check.That(t, len(got) == mostLabels+1 && got["pool.fenceline.io/p127"] == "true" && got["pool.fenceline.io/p128"] == nil, "%s: %s", row.name, text)
			continue
		}
		check.That(t, text == row.want && waits == row.waits, "%s: %s, waits %v", row.name, text, waits)
	}
}
