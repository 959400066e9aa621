// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// conflict makes the lease of an address at which an ADD has met a foreign host. n1 probes it again.
func (w world) conflict(pool, address string, edits ...func(*v1alpha1.IPLeaseSpec)) *v1alpha1.IPLease {
	w.Helper()
	lease := &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: address},
		Spec: v1alpha1.IPLeaseSpec{
			Address: address, Pool: pool, Parent: "eth0", State: v1alpha1.StateQuarantined, Reason: v1alpha1.ReasonConflict,
			Message: "02:00:00:00:00:99 uses the address too (probe)", Since: metav1.Now(), NodeName: "n1", Session: "node/boot",
			Conflict: &v1alpha1.Conflict{MAC: "02:00:00:00:00:99", Source: "probe", FirstSeen: metav1.Now(), LastSeen: metav1.Now(), Count: 1},
		},
	}
	for _, edit := range edits {
		edit(&lease.Spec)
	}
	w.create(lease)
	return lease
}

// waitEnded waits until an object is gone.
func (w world) waitEnded(o client.Object) {
	w.Helper()
	w.eventuallyWithin(20*time.Second, fmt.Sprintf("end of %T %s", o, o.GetName()), func() error {
		err := w.client.Get(w.ctx, client.ObjectKeyFromObject(o), o)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return errors.New("it is still there")
	})
}

// unwantedConflicts: the foreign hosts stay. Each edit ends the leases that it makes useless, and no
// other one.
func unwantedConflicts(w world) {
	pool, other := w.pool("printers", "10.62.0.0/24"), w.pool("printers-too", "10.62.0.64/26")
	excluded, reserved := w.conflict("printers", "10.62.0.10"), w.conflict("printers", "10.62.0.11")
	gateway, left, common := w.conflict("printers", "10.62.0.1"), w.conflict("printers", "10.62.0.12"), w.conflict("printers-too", "10.62.0.70")
	w.waitStatus("printers", "counts them", func(s v1alpha1.IPPoolStatus) bool { return s.Quarantined == 4 })

	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.ExcludeIPs = []string{"10.62.0.10"} })
	w.waitEnded(excluded)
	w.waitEvent("default", "QuarantineEnded", "10.62.0.10", "no pool hands 10.62.0.10 out any more")
	w.reserve("printers", "10.62.0.11")
	w.waitEnded(reserved)
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Gateway = ptr.To("10.62.0.1") })
	w.waitEnded(gateway)
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Disable = ptr.To(true) })
	w.remove(other)
	w.waitStatus("printers-too", "waits: the disabled pool has the address as well", says("Ready", "False/Deleting", "1 Quarantined"))
	for _, lease := range []*v1alpha1.IPLease{left, common} {
		if now := w.lease(lease.Name); now == nil || now.UID != lease.UID {
			w.Errorf("the lease %s of an address that a pool has is %+v", lease.Name, now)
		}
	}
	w.remove(pool)
	for _, object := range []client.Object{left, common, pool, other} {
		w.waitEnded(object)
	}
}

// provenConflict: the pod that had the address before may still speak. If the pool were made again, its
// address must not be free.
func provenConflict(w world) {
	pool := w.pool("predecessor", "10.63.0.0/24")
	lease := w.conflict("predecessor", "10.63.0.10", func(s *v1alpha1.IPLeaseSpec) {
		s.Previous = &v1alpha1.PreviousHolder{Node: "n2", PodUID: "gone", MAC: "02:00:00:00:00:0b", Guarded: true, Reason: v1alpha1.ReasonPodGone, Since: metav1.Now()}
	})
	plain := w.conflict("predecessor", "10.63.0.11")
	w.remove(pool)
	w.waitEnded(plain)
	w.waitStatus("predecessor", "waits for proof", says("Ready", "False/Deleting", "1 Quarantined"))
	if now := w.lease(lease.Name); now == nil || now.UID != lease.UID {
		w.Errorf("the lease with a predecessor is %+v", now)
	}
}
