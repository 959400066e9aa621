// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// OnNode returns the addresses that a pool may hand out on a node to any pod. If the pool hands out no
// new address there, the Rejection is the reason. The candidate has its set in that case too, unless
// the pool is invalid. pools are all pools of the cluster.
func OnNode(pool *v1alpha1.IPPool, pools []v1alpha1.IPPool, node string, labels map[string]string, reserved poolset.Set) (Candidate, *Rejection) {
	all, err := poolset.Validate(pool)
	if err != nil {
		return Candidate{Pool: pool}, &Rejection{pool.Name, Invalid, err.Error()}
	}
	subnet, _ := poolset.Subnet(pool) // Validate has checked it
	own := poolset.Own(pool, all, pools)
	c := Candidate{Pool: pool, Subnet: subnet, Set: own.Minus(reserved)}
	if elsewhere := ForNode(pool, node, labels); elsewhere != nil {
		return c, elsewhere
	}
	return c, closedFor(pool, all, own, c.Set)
}

// ForNode returns the reason for which a pool serves no pod of a node, nil if it is for the node.
func ForNode(pool *v1alpha1.IPPool, node string, labels map[string]string) *Rejection {
	if len(pool.Spec.NodeName) > 0 {
		if !slices.Contains(pool.Spec.NodeName, node) {
			return &Rejection{pool.Name, NodeName, "it is for other nodes"}
		}
	} else if text, ok := matches(pool.Spec.NodeAffinity, labels); !ok {
		return &Rejection{pool.Name, NodeAffinity, text}
	}
	return nil
}
