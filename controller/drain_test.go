// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/poolset"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// drain allocates as the agent of the node does, with what the API server tells,
// until the pool is exhausted, and returns what it has been given.
func (w world) drain(node, pool string) []string {
	w.Helper()
	var all v1alpha1.IPPoolList
	var reservations v1alpha1.ReservedIPList
	if err := errors.Join(w.client.List(w.ctx, &all), w.client.List(w.ctx, &reservations)); err != nil {
		w.Fatal(err)
	}
	request := ipam.Request{
		Pod:      ipam.Pod{Namespace: "default", Name: "drain-" + pool, UID: "1"},
		NodeName: node, Interface: "eth0", ConfigPools: ipam.ConfigPools{V4: []string{pool}},
	}
	choice, err := ipam.ChoosePools(request, all.Items, poolset.ReservedSet(reservations.Items))
	if err != nil {
		w.Fatal(err)
	}
	family, err := choice.Families[0].Open()
	if err != nil {
		w.Fatal(err)
	}
	return w.drainFamily(w.runningPod("drain-"+pool+"-"+node, node), family)
}

// drainFamily gives all addresses of the family to one pod, a container each.
func (w world) drainFamily(pod *corev1.Pod, family ipam.Family) []string {
	w.Helper()
	node := pod.Spec.NodeName
	store := lease.NewStore(lease.Options{
		Client: w.client, Reader: w.client, Node: node, Session: node + "/boot", Clock: clock.RealClock{},
	})
	allocator := allocate.New(allocate.Options{Leases: store, Clock: clock.RealClock{}})
	var got []string
	for i := 0; ; i++ {
		l, err := allocator.First(w.ctx, allocate.Wish{
			Family: family,
			Holder: v1alpha1.Holder{
				Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID), ContainerID: fmt.Sprintf("%s-%d", node, i), Guarded: true,
			},
		})
		if none := (*ipam.NoPoolError)(nil); errors.As(err, &none) {
			return got
		}
		if err != nil {
			w.Errorf("node %s: %v", node, err)
			return got
		}
		got = append(got, l.Spec.Address)
	}
}
