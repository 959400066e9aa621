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
	// sliceManager is the label value of the EndpointSlices that Kubernetes
	// itself makes of Services and pods. It withdraws what it offers; others may
	// name pods for ever.
	sliceManager = "endpointslice-controller.k8s.io"
	// slicesPerPage bounds what one answer of the API server may weigh.
	slicesPerPage = 100

	// offerPauseMin and offerPauseMax are how long an offer is left to be
	// withdrawn between two looks. Kubernetes needs milliseconds, and minutes
	// after many nodes have gone at once.
	offerPauseMin, offerPauseMax = 100 * time.Millisecond, 5 * time.Second
	// offerTold is when people may begin to ask why nothing is done.
	offerTold = 5 * time.Second
)

// Offer is a Service's offer of a lease's address as its holder's. The zero
// Offer is none.
type Offer struct {
	// Slice is the EndpointSlice, namespace/name, that was found first.
	Slice string
	// Since is when an offer was first seen.
	Since time.Time
}

// isOffered says whether clients of a Service are sent to the address as the
// pod's. A pod that is terminating is not ready, unless its Service publishes
// what is not.
func isOffered(slice *discoveryv1.EndpointSlice, pod string, address netip.Addr) bool {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		// Ready that is not said is true (EndpointConditions).
		if !ptr.Deref(e.Conditions.Ready, true) || e.TargetRef == nil || e.TargetRef.Kind != "Pod" || e.TargetRef.Name != pod {
			continue
		}
		for _, text := range e.Addresses {
			if a, err := netip.ParseAddr(text); err == nil && a == address {
				return true
			}
		}
	}
	return false
}

// afterOffer makes an address wait that would be taken while a Service offers
// it: traffic for the old pod would reach the next holder (R12).
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

// mayBeOffered says whether a Service may not know yet that the holder is gone:
// where its node is not Ready, nothing else gives Kubernetes the time to say so.
func mayBeOffered(f Facts) bool {
	holder := f.Lease.Spec.Holder
	if holder == nil || !f.Pod.Known || !f.Node.Known || stateOf(f.Node) == nodeReady {
		return false
	}
	// A pod that nobody has asked to end is deleted first, whoever offers it.
	pod := f.Pod.Object
	return pod == nil || !isHolder(pod, holder.PodUID) || isTerminating(pod)
}

// lookAtOffer asks the API server for an offer of the lease's address.
func (r *Reconciler) lookAtOffer(ctx context.Context, f Facts, n *note) (Offer, error) {
	holder := f.Lease.Spec.Holder
	address, err := netip.ParseAddr(f.Lease.Spec.Address)
	if err != nil {
		return Offer{}, fmt.Errorf("parse the address of lease %s: %w", f.Lease.Name, err)
	}
	var found string
	for token := ""; found == ""; {
		var page discoveryv1.EndpointSliceList
		err := r.Live.List(ctx, &page, client.InNamespace(holder.Namespace), client.Limit(slicesPerPage), client.Continue(token),
			client.MatchingLabels{discoveryv1.LabelManagedBy: sliceManager})
		if err != nil {
			return Offer{}, fmt.Errorf("list the EndpointSlices of namespace %s: %w", holder.Namespace, err)
		}
		for i := range page.Items {
			if isOffered(&page.Items[i], holder.Pod, address) {
				found = page.Items[i].Namespace + "/" + page.Items[i].Name
				break
			}
		}
		if token = page.Continue; token == "" {
			break
		}
	}
	return Offer{Slice: found, Since: firstSeen(&n.offeredSince, found != "", f.Now)}, nil
}
