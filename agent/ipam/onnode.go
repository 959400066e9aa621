package ipam

import (
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// OnNode returns what a pool may hand out on a node, whoever asks, and why it
// hands out nothing new, if it does not. The set is filled in all the same,
// unless the pool is invalid.
func OnNode(pool *v1alpha1.IPPool, node string, labels map[string]string, reserved Set) (Candidate, *Rejection) {
	if err := Validate(pool); err != nil {
		return Candidate{Pool: pool}, &Rejection{pool.Name, Invalid, err.Error()}
	}
	// Validate has seen both.
	subnet, _ := Subnet(pool)
	all, _ := Addresses(pool)
	c := Candidate{Pool: pool, Subnet: subnet, Set: all.Minus(reserved)}
	if len(pool.Spec.NodeName) > 0 {
		if !slices.Contains(pool.Spec.NodeName, node) {
			return c, &Rejection{pool.Name, NodeName, "it is for other nodes"}
		}
	} else if text, ok := matches(pool.Spec.NodeAffinity, labels); !ok {
		return c, &Rejection{pool.Name, NodeAffinity, text}
	}
	return c, closedFor(pool, all, c.Set)
}
