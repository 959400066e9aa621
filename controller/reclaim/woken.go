// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/podview"
)

// woken finds the leases about which an event may change the decision.
type woken struct {
	// cache is the cache of the controller, with its indexes.
	cache client.Reader
	// namespace is the namespace of the agents.
	namespace string
}

// ofLease returns a lease. If it is settled, it may be the successor of each Retained lease of the same
// pod name or virtual machine, so ofLease returns these too.
func (w woken) ofLease(ctx context.Context, o client.Object) []reconcile.Request {
	lease := o.(*v1alpha1.IPLease)
	requests := []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(lease)}}
	if isSettled(&lease.Spec) {
		requests = append(requests, w.ofHolder(ctx, cache.IdentityKey(lease.Spec.Holder), isRetained)...)
	}
	return requests
}

func isRetained(s *v1alpha1.IPLeaseSpec) bool { return s.State == v1alpha1.StateRetained }

func (w woken) ofPod(ctx context.Context, o client.Object) []reconcile.Request {
	pod := o.(*podview.Pod)
	if pod.Namespace == w.namespace && agents.IsAgent(pod) {
		// An agent verifies Quarantined leases and keeps the Warm leases of its node.
		return w.onNode(ctx, pod.Spec.NodeName)
	}
	requests := w.ofHolder(ctx, cache.PodKey(pod.Namespace, pod.Name), nil)
	for _, key := range cache.MachineKeys(pod) {
		requests = append(requests, w.ofHolder(ctx, key, nil)...)
	}
	return requests
}

func (w woken) ofNode(ctx context.Context, o client.Object) []reconcile.Request {
	return w.onNode(ctx, o.GetName())
}

func (w woken) onNode(ctx context.Context, node string) []reconcile.Request {
	return append(w.at(ctx, cache.LeasesByNode, node, nil), w.at(ctx, cache.LeasesByState, string(v1alpha1.StateQuarantined), nil)...)
}

func (w woken) ofStatefulSet(ctx context.Context, o client.Object) []reconcile.Request {
	return w.at(ctx, cache.LeasesByOwner, cache.PodKey(o.GetNamespace(), o.GetName()), nil)
}

func (w woken) ofPool(ctx context.Context, o client.Object) []reconcile.Request {
	return append(w.at(ctx, cache.LeasesByPool, o.GetName(), nil), w.withoutHolder(ctx, o)...)
}

// withoutHolder returns the leases that end when no pool hands out their addresses. Each pool may
// be the last one that does.
func (w woken) withoutHolder(ctx context.Context, _ client.Object) []reconcile.Request {
	return w.at(ctx, cache.LeasesByState, string(v1alpha1.StateQuarantined), hadNoHolder)
}

// at returns the leases under a key of an index. want selects among them; nil selects all.
func (w woken) at(ctx context.Context, index, key string, want func(*v1alpha1.IPLeaseSpec) bool) []reconcile.Request {
	var leases v1alpha1.IPLeaseList
	err := w.cache.List(ctx, &leases, client.UnsafeDisableDeepCopy, client.MatchingFields{index: key})
	return requestsFor(ctx, leases.Items, err, want)
}

// ofHolder is like at, with a key of cache.LeasesOf.
func (w woken) ofHolder(ctx context.Context, key string, want func(*v1alpha1.IPLeaseSpec) bool) []reconcile.Request {
	leases, err := cache.LeasesOf(ctx, w.cache, key)
	return requestsFor(ctx, leases, err, want)
}

func requestsFor(ctx context.Context, leases []v1alpha1.IPLease, err error, want func(*v1alpha1.IPLeaseSpec) bool) []reconcile.Request {
	if err != nil {
		// The cache fails only while it stops. The next leader looks at all leases.
		log.FromContext(ctx).Error(err, "list leases")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(leases))
	for i := range leases {
		if want == nil || want(&leases[i].Spec) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: leases[i].Name}})
		}
	}
	return requests
}
