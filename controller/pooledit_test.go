// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"fmt"
	"slices"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// edits takes an address in use out of its pool in each way that there is.
func edits(w world) {
	pool := w.pool("edited", "10.43.0.0/28")
	pod := w.runningPod("edited-0", "n1")
	l := w.bound("edited", "10.43.0.9", pod)
	whole := pool.Spec.DeepCopy()
	for _, edit := range []func(*v1alpha1.IPPoolSpec){
		func(s *v1alpha1.IPPoolSpec) { s.IPs = []string{"10.43.0.2-10.43.0.8"} },
		func(s *v1alpha1.IPPoolSpec) { s.ExcludeIPs = []string{"10.43.0.9"} },
		func(s *v1alpha1.IPPoolSpec) { s.Gateway = ptr.To("10.43.0.9") },
	} {
		change(w, pool, func(p *v1alpha1.IPPool) { edit(&p.Spec) })
		w.waitStatus("edited", "names the lease outside, and marks its address", func(s v1alpha1.IPPoolStatus) bool {
			return says("Outside", "True/AddressInUse", "10.43.0.9 (pod default/edited-0)")(s) && is("Ready", "True/Ready")(s) &&
				s.Used == 1 && slices.Equal(marks(s.InUse), []uint64{9})
		})
		change(w, pool, func(p *v1alpha1.IPPool) { p.Spec = *whole.DeepCopy() })
		w.waitStatus("edited", "has its address back", is("Outside", "False/None"))
	}
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.ExcludeIPs = []string{"10.43.0.8/29"} })
	w.waitStatus("edited", "names the lease outside", is("Outside", "True/AddressInUse"))
	if got := w.drain("n1", "edited"); len(got) != 7 || slices.Contains(got, "10.43.0.9") {
		w.Errorf("an agent was given %v of a pool with 7 addresses", got)
	}
	if now := w.lease(l.Name); now == nil || now.UID != l.UID || now.Spec.State != v1alpha1.StateBound {
		w.Errorf("the lease outside is %+v", now)
	}
	w.waitStatus("edited", "exhausted by 7 leases, the one outside is not of them", says("Exhausted", "True/NoAddress", "all 7 addresses", "8 Bound"))
	w.remove(l)
	w.waitStatus("edited", "nothing is outside", is("Outside", "False/None"))
}

func disabled(w world) {
	pool := w.pool("disabled", "10.44.0.0/28")
	l := w.bound("disabled", "10.44.0.9", w.runningPod("disabled-0", "n1"))
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Disable = ptr.To(true) })
	w.waitStatus("disabled", "says so", func(s v1alpha1.IPPoolStatus) bool {
		return is("Ready", "False/Disabled")(s) && is("Outside", "False/None")(s) && s.Bound == 1
	})
	w.waitEvent("default", "ReadyFalse", "disabled", "spec.disable")
	if now := w.lease(l.Name); now == nil || now.UID != l.UID || now.Spec.State != v1alpha1.StateBound {
		w.Errorf("the lease of a disabled pool is %+v", now)
	}
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Disable = nil })
	w.waitStatus("disabled", "is ready again", is("Ready", "True/Ready"))
}

func deletion(w world) {
	pool := w.pool("leaving", "10.45.0.0/28")
	l := w.bound("leaving", "10.45.0.9", w.runningPod("leaving-0", "n1"))
	kept := w.retained("leaving", "10.45.0.10", "leaving", 0, forever)
	w.waitStatus("leaving", "two leases", func(s v1alpha1.IPPoolStatus) bool { return s.Used == 2 })
	w.remove(pool)
	w.waitStatus("leaving", "says what it waits for", says("Ready", "False/Deleting", "1 Bound, 1 Retained"))
	w.remove(l)
	w.waitStatus("leaving", "waits for the Retained one", says("Ready", "False/Deleting", "gone: 1 Retained"))
	w.remove(kept)
	w.eventually("end of the pool", func() error {
		if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(pool), pool); client.IgnoreNotFound(err) != nil {
			return err
		} else if err == nil {
			return fmt.Errorf("its status is %+v", pool.Status)
		}
		return nil
	})
}
