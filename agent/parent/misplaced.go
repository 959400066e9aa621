// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/diagnosis"
)

// Network is the network configuration that the chart writes on this node.
type Network struct {
	Name string
	// Masters are the masters of its plugins. "" is the interface of the node's default route.
	Masters []string
}

// Misplaced returns the pods that run on a parent to which a new pod would not come: their pool names
// other parents, or their network leads to another interface now. They keep their addresses.
func (p *Parents) Misplaced() []diagnosis.Misplaced {
	pools := &v1alpha1.IPPoolList{}
	if err := p.Pools.List(context.Background(), pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil // no pool is known to name another parent
	}
	now := 0 // the interface to which the network leads
	if len(p.Configured.Masters) == 1 {
		now, _, _ = master(p.Configured.Masters[0])
	}
	var all []diagnosis.Misplaced
	add := func(e *attachment.Entry, why, do string) {
		pod := e.PodNamespace + "/" + e.PodName
		i := slices.IndexFunc(all, func(m diagnosis.Misplaced) bool { return m.Parent == e.Parent && m.Why == why })
		if i < 0 {
			i, all = len(all), append(all, diagnosis.Misplaced{Parent: e.Parent, Why: why, Do: do})
		}
		if !slices.Contains(all[i].Pods, pod) {
			all[i].Pods = append(all[i].Pods, pod)
		}
	}
	type on struct {
		pool   string
		parent int
	}
	carries := map[on]bool{}
	for e := range p.Bound() {
		if !Exists(e.ParentIndex) {
			continue // the pod has lost its interface
		}
		for _, address := range e.Addresses {
			i := slices.IndexFunc(pools.Items, func(p v1alpha1.IPPool) bool { return p.Name == address.Pool })
			if i < 0 {
				continue
			}
			at := on{address.Pool, e.ParentIndex}
			if _, known := carries[at]; !known {
				carries[at] = Carries(&pools.Items[i], e.ParentIndex)
			}
			if !carries[at] {
				add(e, fmt.Sprintf("pool %s names the parents %v", at.pool, pools.Items[i].Spec.Parents),
					"name "+e.Parent+" in spec.parents of the pool, or delete the pods: new ones come to a parent of the pool or get no address")
			}
		}
		if e.Device == "" && e.Network == p.Configured.Name && now != 0 && now != e.ParentIndex {
			add(e, fmt.Sprintf("network %s leads to %s now", e.Network, nameOf(now, "another interface")),
				"set cni.conflist.master of the chart to "+e.Parent+", or delete the pods; spec.parents keeps a pool to its parents")
		}
	}
	return all
}

// tell tells each kind of misplaced pods once, until there are none of it.
func (p *Parents) tell() {
	told := map[string]bool{}
	for _, m := range p.Misplaced() {
		kind := m.Parent + " " + m.Why
		if told[kind] = true; !p.told[kind] {
			p.Tell(m)
		}
	}
	p.told = told
}
