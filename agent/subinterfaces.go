// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/segment/subinterface"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// makeSubinterfaces returns the keeper of the VLAN subinterfaces that networks name.
func (a *agent) makeSubinterfaces() *subinterface.Keeper {
	return subinterface.New(subinterface.Options{
		Name: a.node, Parents: a.vlanParents, Networks: a.networks, Node: subinterface.Kernel{},
		Used: func(index int) bool {
			return slices.ContainsFunc(a.journal.All(), func(e *journal.Entry) bool { return e.ParentIndex == index })
		},
		Faults: a.counters.SubinterfaceFaults, Events: a.events, Log: a.log, Clock: clock.RealClock{},
	})
}

// networks returns the parents of this node that its network configuration and the pools name. With
// an error, some are missing.
func (a *agent) networks() (all []subinterface.Network, err error) {
	masters, unknown := a.installer.Masters()
	all = append(all, subinterface.Network{Of: "the network configuration of the chart", Parents: masters})
	node, pools := &corev1.Node{}, &v1alpha1.IPPoolList{}
	reader := a.mgr.GetClient()
	if err := errors.Join(
		reader.Get(context.Background(), client.ObjectKey{Name: a.node}, node, client.UnsafeDisableDeepCopy),
		reader.List(context.Background(), pools, client.UnsafeDisableDeepCopy),
	); err != nil {
		return all, fmt.Errorf("read the pools of node %s: %w", a.node, err)
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		if ipam.ForNode(pool, a.node, node.Labels) != nil {
			continue
		}
		all = append(all, subinterface.Network{
			Of: "pool " + pool.Name, VLAN: int(ptr.Deref(pool.Spec.Vlan, 0)), Parents: pool.Spec.Parents,
		})
	}
	return all, unknown
}
