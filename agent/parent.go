package main

import (
	"fmt"
	"net"

	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/verify"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// segmentOf opens the segment on which this node reaches a pool.
func (a *agent) segmentOf(pool *v1alpha1.IPPool, parent string) (verify.Segment, error) {
	for _, name := range parents(pool, a.holders, parent) {
		if link, err := net.InterfaceByName(name); err == nil {
			return a.segments.Open(link.Index)
		}
	}
	return nil, fmt.Errorf("node %s knows no parent of pool %q: name it in the pool's spec.parents", a.node, pool.Name)
}

// parents returns the names under which a node may reach a pool, best first:
// those that the pool names, those that pods of this node use, and the one that
// the last holder's node has used.
func parents(pool *v1alpha1.IPPool, holders *holder.Holders, last string) []string {
	names := append([]string{}, pool.Spec.Parents...)
	for _, e := range holders.Bound() {
		for _, address := range e.Addresses {
			if address.Pool == pool.Name {
				names = append(names, e.Parent)
			}
		}
	}
	return append(names, last)
}
