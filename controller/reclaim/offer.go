package reclaim

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
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

// endpoint is a pod at an address.
type endpoint struct {
	pod     string
	address netip.Addr
}

// isOffered says whether an EndpointSlice sends clients of a Service there. A pod
// that is terminating is not ready, unless its Service publishes what is not.
func (e endpoint) isOffered(slice *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(slice.Endpoints, func(o discoveryv1.Endpoint) bool {
		// Ready that is not said is true (EndpointConditions).
		return ptr.Deref(o.Conditions.Ready, true) && o.TargetRef != nil && o.TargetRef.Kind == "Pod" && o.TargetRef.Name == e.pod &&
			slices.ContainsFunc(o.Addresses, func(text string) bool {
				address, err := netip.ParseAddr(text)
				return err == nil && address == e.address
			})
	})
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
func lookAtOffer(ctx context.Context, l live, f Facts, n *note) (Offer, error) {
	address, err := netip.ParseAddr(f.Lease.Spec.Address)
	if err != nil {
		return Offer{}, fmt.Errorf("parse the address of lease %s: %w", f.Lease.Name, err)
	}
	slice, err := l.offer(ctx, f.Lease.Spec.Holder.Namespace, endpoint{f.Lease.Spec.Holder.Pod, address})
	if err != nil {
		return Offer{}, err
	}
	return Offer{Slice: slice, Since: firstSeen(&n.rarely().offeredSince, slice != "", f.Now)}, nil
}

// sliceReader reads the EndpointSlices of a namespace.
type sliceReader struct{ server client.Reader }

// read names for each endpoint an EndpointSlice that offers it, or none.
func (r sliceReader) read(ctx context.Context, namespace string, asked []endpoint) ([]answer[string], error) {
	answers := make([]answer[string], len(asked))
	for page := ""; ; {
		var found discoveryv1.EndpointSliceList
		err := r.server.List(ctx, &found, client.InNamespace(namespace), client.Limit(slicesPerPage), client.Continue(page),
			client.MatchingLabels{discoveryv1.LabelManagedBy: sliceManager})
		if err != nil {
			return nil, fmt.Errorf("list the EndpointSlices of namespace %s: %w", namespace, err)
		}
		for i := range found.Items {
			for j, e := range asked {
				if e.isOffered(&found.Items[i]) {
					answers[j].value = namespace + "/" + found.Items[i].Name
				}
			}
		}
		if page = found.Continue; page == "" {
			return answers, nil
		}
	}
}
