package pool

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
)

// isScarce says whether Warm leases on one node may keep another from an
// address. They cannot while as many addresses are left, Warm ones among them,
// as all agents together keep ready: each agent finds at least its own. Warm ones
// count as left, or giving them up would end the scarcity and bring them back.
//
// It ends with a quarter more than it began with, as far as the pool has so many,
// so that a pod that comes and goes does not have every agent give up and probe anew.
func isScarce(f Facts, free, total int64) bool {
	warm := ptr.Deref(f.Pool.Spec.Warm, 0)
	// A single agent keeps nobody from an address.
	if warm == 0 || f.Served < 2 {
		return false
	}
	enough := int64(f.Served) * warm
	if f.Pool.Status.Scarce {
		more := enough + max(1, enough/4)
		enough = max(enough, min(more, total))
	}
	return free < enough
}

// asksForLabels says whether scarcity of the pool depends on the labels of nodes.
func asksForLabels(pool *v1alpha1.IPPool) bool {
	return pool.Spec.NodeAffinity != nil && len(pool.Spec.NodeName) == 0 && ptr.Deref(pool.Spec.Warm, 0) > 0
}

// served counts the agents on nodes that the pool allows: nodeName, else
// nodeAffinity, as agents read it. labelsOf tells the labels of a node.
func served(pool *v1alpha1.IPPool, agents []podview.Pod, labelsOf func(node string) labels.Set) int {
	spec := &pool.Spec
	selector, err := metav1.LabelSelectorAsSelector(spec.NodeAffinity)
	if spec.NodeAffinity == nil || err != nil {
		selector = labels.Everything()
	}
	n := 0
	for i := range agents {
		node := agents[i].Spec.NodeName
		if len(spec.NodeName) > 0 {
			if slices.Contains(spec.NodeName, node) {
				n++
			}
		} else if selector.Empty() || selector.Matches(labelsOf(node)) {
			n++
		}
	}
	return n
}
