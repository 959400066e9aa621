// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// TestFailOverOfPools kills the leader between an edit and what follows from it.
// The controllers are real processes that have no more rights than the chart gives.
func TestFailOverOfPools(t *testing.T) {
	w, server := newWorld(t)
	w.readyNode("n1")
	p := w.startPair(server)

	pool, leaving := w.pool("edited", "10.50.0.0/24"), w.pool("leaving", "10.51.0.0/24")
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Reclaim.Cooldown = &v1alpha1.Duration{Duration: time.Hour} })
	pod := w.runningPod("pod-0", "n1")
	stays, ends, last := w.bound("edited", "10.50.0.9", pod), w.bound("edited", "10.50.0.10", pod), w.bound("leaving", "10.51.0.9", pod)
	cooled := w.bound("edited", "10.50.0.20", pod)
	w.reserve("routers", "10.50.0.10")
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.ExcludeIPs = []string{"10.50.0.9"} })
	// Only then does it have the finalizer that keeps it.
	w.waitStatus("leaving", "is served", is("Ready", "True/Ready"))
	w.remove(leaving)
	w.waitStatus("edited", "names both leases outside", says("Outside", "True/AddressInUse", "10.50.0.9 ", "10.50.0.10 "))
	w.waitReservation("routers", "InUse", "True/AddressInUse", 1)
	w.waitStatus("leaving", "waits", is("Ready", "False/Deleting"))
	w.remove(cooled)
	w.waitStatus("edited", "an address cools down", func(s v1alpha1.IPPoolStatus) bool {
		return s.Used == 2 && slices.Equal(marks(s.InUse), []uint64{9, 10, 20})
	})

	p.killLeader()
	// Nobody sees these end.
	w.remove(ends)
	w.remove(last)
	p.waitSuccessor()
	w.waitStatus("edited", "names the lease that stays, has forgotten what cools down", func(s v1alpha1.IPPoolStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, "Outside")
		return says("Outside", "True/AddressInUse", "10.50.0.9 ")(s) && !strings.Contains(c.Message, "10.50.0.10 ") &&
			s.Used == 1 && s.Reserved == 1 && slices.Equal(marks(s.InUse), []uint64{9})
	})
	w.waitReservation("routers", "InUse", "False/None", 0)
	w.eventually("end of the pool whose last lease nobody saw end", func() error {
		err := w.client.Get(w.ctx, client.ObjectKeyFromObject(leaving), leaving)
		if client.IgnoreNotFound(err) != nil {
			return err
		} else if err == nil {
			return fmt.Errorf("its status is %+v", leaving.Status)
		}
		return nil
	})
	if l := w.lease(stays.Name); l == nil || l.UID != stays.UID || l.Spec.State != v1alpha1.StateBound {
		t.Errorf("the lease outside is %+v", l)
	}
	p.endSuccessor()
}
