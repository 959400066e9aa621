// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// A pod gets a new sandbox while its object lives: its sandbox has died, or its node has booted. The
// kubelet sends the DEL of the old sandbox before or after the ADD of the new one. The pod keeps its
// addresses in both orders.

// mostExpected bounds the memory of Expected. The leases that are older are in the cache.
const mostExpected = 1024

// Expected has the interfaces of pods whose next sandbox may get the address of an earlier one. It
// bridges the time until the agent's cache shows the lease. Safe for concurrent use.
type Expected struct{ interfaces *lru.Cache }

type podInterface struct{ podUID, ifname string }

func (e Expected) Has(podUID, ifname string) bool {
	_, has := e.interfaces.Get(podInterface{podUID, ifname})
	return has
}

// Forget removes an interface that has its addresses.
func (e Expected) Forget(podUID, ifname string) {
	e.interfaces.Remove(podInterface{podUID, ifname})
}

// Add records that the ADD of the next sandbox of a holder's pod looks for its lease.
func (e Expected) Add(holder *v1alpha1.Holder) {
	e.interfaces.Add(podInterface{holder.PodUID, holder.Interface}, nil)
}

// podMay reports whether a condition may hold for the pod of an entry. If the cache fails, it reports true: the
// controller ends a lease that is kept for a pod that does not live.
func (r *Releaser) podMay(ctx context.Context, e *attachment.Entry, holds func(*corev1.Pod) bool) bool {
	is, err := r.podIs(ctx, e, holds)
	return is || err != nil
}

// podIs reports whether the pod of an entry exists and meets a condition. It reads the agent's cache of its
// own node's pods, so a DEL does not wait for the API server. An agent that started without the API server has no
// such cache yet, which is an error.
func (r *Releaser) podIs(ctx context.Context, e *attachment.Entry, holds func(*corev1.Pod) bool) (bool, error) {
	pod := &corev1.Pod{}
	err := r.Cache.Get(ctx, types.NamespacedName{Namespace: e.PodNamespace, Name: e.PodName}, pod, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return owner.IsUID(pod, e.PodUID) && holds(pod), nil
}

// getsSandboxes reports whether a kubelet makes another sandbox for a pod whose sandbox has ended. A
// pod with the restart policy Never fails instead.
func getsSandboxes(pod *corev1.Pod) bool {
	return !owner.Ends(pod) && pod.Spec.RestartPolicy != corev1.RestartPolicyNever && !owner.HasFinished(pod)
}

// isProven reports whether an address that an entry gives up is proven (R1). The address of an
// undone ADD is not, because the probe may have failed, unless the ADD has taken it over.
func isProven(e *attachment.Entry, address attachment.Address) bool {
	return e.Phase == attachment.Releasing || address.Kept
}
