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

// aftermathLimit is how long leases and pods may take to agree once whatever was
// wrong is right again.
const aftermathLimit = 90 * time.Second

// badDay adds the aftermath to a scenario.
func badDay(play func(context.Context, *act) error) func(context.Context, *act) error {
	return func(ctx context.Context, a *act) error {
		if err := play(ctx, a); err != nil {
			return err
		}
		return a.aftermath(ctx)
	}
}

// aftermath judges that the leases of the scenario's pool are exactly those of its living pods, and
// that none is left once these pods have ended. So no address was lost, given twice, leaked or left
// in quarantine.
func (a *act) aftermath(ctx context.Context) error {
	over := time.Now()
	err := eventually(ctx, aftermathLimit, "leases that equal the living holders", a.leasesEqualHolders)
	if err != nil {
		return err
	}
	a.figures.add("leases equal living holders, after the scenario", time.Since(over))
	if err := a.nothingIsLeft(ctx, a.namespace); err != nil {
		return err
	}
	a.story.Say("In the end, each lease belongs to a living pod. After the last pod, no lease is left.")
	return nil
}

// leasesEqualHolders returns an error unless each pod runs and has the lease of
// its address, and there is no other lease, Quarantined or not.
func (a *act) leasesEqualHolders(ctx context.Context) error {
	pods, err := a.pods(ctx)
	if err != nil {
		return err
	}
	leases, err := a.leases(ctx, a.namespace)
	if err != nil {
		return err
	}
	return equal(leases, pods)
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
