// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// sliceManager is the label value of the EndpointSlices that Kubernetes itself makes from
	// Services and pods. Kubernetes removes pods that have gone. Other managers may keep them for ever.
	sliceManager = "endpointslice-controller.k8s.io"
	// slicesPerPage limits the size of one answer of the API server.
	slicesPerPage = 100

	// offerPauseMin and offerPauseMax are the pauses between two looks for an offer. Kubernetes
	// withdraws an offer within milliseconds, or within minutes after many nodes have gone at once.
	offerPauseMin, offerPauseMax = 100 * time.Millisecond, 5 * time.Second
	// offerTold is the age of an offer at which the lease's message reports it.
	offerTold = 5 * time.Second
)

// Offer means that a Service sends clients to the holder's pod at the lease's address. The zero
// Offer means that no Service does.
type Offer struct {
	// Slice is the namespace/name of an EndpointSlice with the offer.
	Slice string
	// Since is when an offer was first seen.
	Since time.Time
}

// endpoint is a pod at an address.
type endpoint struct {
	pod     string
	address netip.Addr
}

// afterOffer makes a quarantine wait while a Service offers the address. Otherwise traffic for the
// old pod would reach the next holder (R12).
func afterOffer(f Facts, a Action) Action {
	if a.Kind != Quarantine || f.Offer.Slice == "" {
		return a
	}
	waited := f.Now.Sub(f.Offer.Since)
	return Action{
		Kind: Wait, Until: f.Now.Add(min(max(waited, offerPauseMin), offerPauseMax)), Tell: waited >= offerTold,
		Why: fmt.Sprintf("%s, and EndpointSlice %s still offers the address as the pod's", a.Why, f.Offer.Slice),
	}
}

// mayBeOffered reports whether a Service may still offer the address of a holder that is gone. On a
// Ready node it is false, because the waits of Decide give Kubernetes enough time.
func mayBeOffered(f Facts) bool {
	holder := f.Lease.Spec.Holder
	if holder == nil || !f.Pod.Known || !f.Node.Known || stateOf(f.Node) == nodeReady {
		return false
	}
	// A pod that is not Terminating is deleted first, with or without an offer.
	pod := f.Pod.Object
	return pod == nil || !isHolder(pod, holder.PodUID) || isTerminating(pod)
}

// lookAtOffer reads from the API server whether a Service offers the lease's address.
func (r *Reconciler) lookAtOffer(ctx context.Context, f Facts, n *note) (Offer, error) {
	holder := f.Lease.Spec.Holder
	offers, err := r.offers.Get(ctx, holder.Namespace)
	if err != nil {
		return Offer{}, err
	}
	slice := offers[endpoint{holder.Pod, f.Lease.Spec.Addr()}]
	return Offer{Slice: slice, Since: n.firstSeen(offeredAddress, slice != "", f.Now)}, nil
}

// offersIn returns the ready endpoints of a namespace, each with an EndpointSlice (namespace/name)
// that offers it.
func offersIn(ctx context.Context, live client.Reader, namespace string) (map[endpoint]string, error) {
	offers := map[endpoint]string{}
	for page := ""; ; {
		var found discoveryv1.EndpointSliceList
		err := live.List(ctx, &found, client.InNamespace(namespace), client.Limit(slicesPerPage), client.Continue(page),
			client.MatchingLabels{discoveryv1.LabelManagedBy: sliceManager})
		if err != nil {
			return nil, fmt.Errorf("list the EndpointSlices of namespace %s: %w", namespace, err)
		}
		for i := range found.Items {
			for _, e := range readyIn(&found.Items[i]) {
				offers[e] = namespace + "/" + found.Items[i].Name
			}
		}
		if page = found.Continue; page == "" {
			return offers, nil
		}
	}
}

// readyIn returns the pods to which a Service sends clients, by an EndpointSlice. A terminating pod
// is ready only if its Service sets publishNotReadyAddresses.
func readyIn(slice *discoveryv1.EndpointSlice) (pods []endpoint) {
	for _, o := range slice.Endpoints {
		// A missing ready condition means true (EndpointConditions).
		if !ptr.Deref(o.Conditions.Ready, true) || o.TargetRef == nil || o.TargetRef.Kind != "Pod" {
			continue
		}
		for _, text := range o.Addresses {
			if address, err := netip.ParseAddr(text); err == nil {
				pods = append(pods, endpoint{o.TargetRef.Name, address})
			}
		}
	}
	return pods
}
