// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func scarce(w world) {
	pool := w.pool("scarce", "10.48.0.0/29")
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Warm = ptr.To[int64](1) })
	pod := w.runningPod("scarce-0", "n1")
	var leases []*v1alpha1.IPLease
	for _, a := range addresses("10.48.0.1", 4) {
		leases = append(leases, w.bound("scarce", a, pod))
	}
	w.waitStatus("scarce", "two left for two agents", func(s v1alpha1.IPPoolStatus) bool { return s.Used == 4 && s.Agents == 2 && !s.Scarce })
	leases = append(leases, w.bound("scarce", "10.48.0.5", pod))
	w.waitStatus("scarce", "one left for two agents", func(s v1alpha1.IPPoolStatus) bool { return s.Used == 5 && s.Scarce })
	w.remove(leases[0])
	w.waitStatus("scarce", "two left are not enough yet", func(s v1alpha1.IPPoolStatus) bool { return s.Used == 4 && s.Scarce })
	w.remove(leases[1])
	w.waitStatus("scarce", "three left", func(s v1alpha1.IPPoolStatus) bool { return s.Used == 3 && !s.Scarce })
}

// scarceOnOneNode: the labels of nodes decide how many agents keep Warm leases.
func scarceOnOneNode(w world) {
	w.create(&v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "rack"}, Spec: v1alpha1.IPPoolSpec{
		Subnet: "10.49.0.0/30", Warm: ptr.To[int64](2),
		NodeAffinity: &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "a"}},
	}})
	label := func(node, rack string) {
		change(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, func(n *corev1.Node) { n.Labels = map[string]string{"rack": rack} })
	}
	label("n1", "a")
	// More than once, for the first change may be seen while the pool is looked at anyway.
	for range 3 {
		label("n2", "b")
		w.waitStatus("rack", "for one node nothing is scarce", func(s v1alpha1.IPPoolStatus) bool { return s.Total == 2 && s.Agents == 2 && !s.Scarce })
		label("n2", "a")
		w.waitStatus("rack", "for two nodes it is", func(s v1alpha1.IPPoolStatus) bool { return s.Scarce })
	}
}
