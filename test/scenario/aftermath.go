// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// aftermathLimit is the time in which leases and pods must agree after all faults have ended.
const aftermathLimit = 90 * time.Second

// badDay adds the aftermath to a scenario.
func badDay(play func(context.Context, *act)) func(context.Context, *act) {
	return func(ctx context.Context, a *act) {
		play(ctx, a)
		a.aftermath(ctx)
	}
}

// aftermath judges that the leases of the scenario's pool are exactly those of its living pods, and
// that none is left once these pods have ended. So no address was lost, given twice, leaked or left
// in quarantine.
func (a *act) aftermath(ctx context.Context) {
	eventually(ctx, aftermathLimit, "leases that equal the living holders", a.leasesEqualHolders)
	a.nothingIsLeft(ctx, a.namespace)
	a.story.Say("In the end, each lease belongs to a living pod. After the last pod, no lease is left.")
}

// leasesEqualHolders fails unless each pod runs and has the lease of
// its address, and there is no other lease, Quarantined or not.
func (a *act) leasesEqualHolders(ctx context.Context) {
	pods := a.pods(ctx) // before the leases
	check(equal(a.leases(ctx, a.namespace), pods))
}

// equal compares the leases of a pool with the pods that have its addresses.
func equal(leases []v1alpha1.IPLease, pods []corev1.Pod) error {
	addresses := map[string]string{} // by pod UID
	var errs []error
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp != nil || !isReady(p) {
			errs = append(errs, fmt.Errorf("pod %s does not run", p.Name))
		}
		addresses[string(p.UID)] = p.Status.PodIP
	}
	for i := range leases {
		l := &leases[i]
		h := l.Spec.Holder
		if l.Spec.State != v1alpha1.StateBound || h == nil || addresses[h.PodUID] != l.Spec.Address {
			errs = append(errs, fmt.Errorf("no living pod has lease %s", describe(l)))
			continue
		}
		delete(addresses, h.PodUID)
	}
	for uid, addr := range addresses {
		errs = append(errs, fmt.Errorf("pod %s has %q and no lease", uid, addr))
	}
	return errors.Join(errs...)
}
