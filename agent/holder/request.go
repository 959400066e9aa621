package holder

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// annotationConfigHash carries the UID that the kubelet gives to the runtime
// for a static pod; the mirror pod's own UID is another one.
const annotationConfigHash = "kubernetes.io/config.hash"

func apiUID(uid string) types.UID { return types.UID(uid) }

// pod returns the pod of a call. The runtime may be ahead of the cache, and a
// name may have come back with another UID: then the API server is asked. What
// the cache has is its own: nobody changes it.
func (h *Holders) pod(ctx context.Context, p agentapi.Pod) (*corev1.Pod, error) {
	name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	for _, reader := range []client.Reader{h.Cache, h.Reader} {
		// A new one for each: the answer of the API server would be decoded into the cache's.
		pod := &corev1.Pod{}
		err := reader.Get(ctx, name, pod, client.UnsafeDisableDeepCopy)
		switch {
		case err == nil && isUID(pod, p.UID):
			return pod, nil
		case err != nil && client.IgnoreNotFound(err) != nil:
			return nil, unavailable(fmt.Errorf("read pod %s: %w", name, err))
		}
	}
	return nil, agentapi.Errorf(agentapi.CodeTryAgainLater, "pod %s with UID %s does not exist", name, p.UID)
}

// isUID tells whether the runtime's UID is the pod's. An old runtime passes none.
func isUID(pod *corev1.Pod, uid string) bool {
	return uid == "" || string(pod.UID) == uid || pod.Annotations[annotationConfigHash] == uid
}

// unavailable gives an error the code that makes the runtime try again, if
// the API server is what is missing (R5), and leaves any other as it is.
func unavailable(err error) error {
	if !lease.IsUnavailable(err) {
		return err
	}
	return agentapi.Errorf(agentapi.CodeTryAgainLater, "%w; the API server is away, addresses are given once it answers", err)
}

// runtimeUID is the UID by which the runtime knows the pod. It is that of the
// pod's life: a mirror pod may be deleted and made again while its static pod
// runs on.
func runtimeUID(pod *corev1.Pod) string {
	if hash := pod.Annotations[annotationConfigHash]; hash != "" {
		return hash
	}
	return string(pod.UID)
}

// choose asks the rules which pools may serve an interface that keeps some
// addresses. What it reads is the cache's own: nobody changes it.
func (h *Holders) choose(ctx context.Context, r agentapi.AddRequest, pod *corev1.Pod, kept []v1alpha1.IPLease) (ipam.Choice, error) {
	if _, err := retentionOf(pod); err != nil {
		return ipam.Choice{}, err
	}
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := h.Cache.Get(ctx, types.NamespacedName{Name: pod.Namespace}, ns, client.UnsafeDisableDeepCopy); err != nil {
		return ipam.Choice{}, unavailable(fmt.Errorf("read namespace %s: %w", pod.Namespace, err))
	}
	node := &corev1.Node{}
	if err := h.Cache.Get(ctx, types.NamespacedName{Name: h.Node}, node, client.UnsafeDisableDeepCopy); err != nil {
		return ipam.Choice{}, unavailable(fmt.Errorf("read node %s: %w", h.Node, err))
	}
	pools := &v1alpha1.IPPoolList{}
	if err := h.Cache.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return ipam.Choice{}, unavailable(fmt.Errorf("list pools: %w", err))
	}
	reservations := &v1alpha1.ReservedIPList{}
	if err := h.Cache.List(ctx, reservations, client.UnsafeDisableDeepCopy); err != nil {
		return ipam.Choice{}, unavailable(fmt.Errorf("list reservations: %w", err))
	}
	choice, err := ipam.ChoosePools(ipam.Request{
		Pod: ipam.Pod{
			Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID),
			Labels: pod.Labels, Annotations: pod.Annotations,
		},
		NamespaceLabels:      ns.Labels,
		NamespaceAnnotations: ns.Annotations,
		NodeName:             h.Node,
		NodeLabels:           node.Labels,
		Interface:            r.Interface,
		Earlier:              h.earlier(runtimeUID(pod), r.Attachment, pools.Items),
		Kept:                 keptOf(kept),
		ConfigPools:          ipam.ConfigPools{V4: r.Network.DefaultIPv4IPPool, V6: r.Network.DefaultIPv6IPPool},
		IPs:                  r.IPs,
	}, pools.Items, ipam.ReservedSet(reservations.Items))
	if err != nil {
		return ipam.Choice{}, refusal(err)
	}
	return choice, nil
}

// earlier returns the interfaces that this sandbox of the pod has already.
func (h *Holders) earlier(podUID string, of agentapi.Attachment, pools []v1alpha1.IPPool) []ipam.Interface {
	var found []ipam.Interface
	for _, e := range h.Journal.OfPod(podUID) {
		if e.ContainerID != of.ContainerID || e.Interface == of.Interface {
			continue
		}
		i := ipam.Interface{Name: e.Interface}
		for _, address := range e.Addresses {
			if subnet, ok := subnetOf(address.Pool, pools); ok {
				i.Subnets = append(i.Subnets, subnet)
			}
		}
		found = append(found, i)
	}
	return found
}

// subnetOf is the subnet of the pool of a name, if there is one.
func subnetOf(pool string, pools []v1alpha1.IPPool) (netip.Prefix, bool) {
	i := slices.IndexFunc(pools, func(p v1alpha1.IPPool) bool { return p.Name == pool })
	if i < 0 {
		return netip.Prefix{}, false
	}
	subnet, err := ipam.Subnet(&pools[i])
	return subnet, err == nil
}

// keptOf returns the addresses of leases.
func keptOf(leases []v1alpha1.IPLease) []ipam.Kept {
	var kept []ipam.Kept
	for _, l := range leases {
		if addr, err := netip.ParseAddr(l.Spec.Address); err == nil {
			kept = append(kept, ipam.Kept{Addr: addr, Pool: l.Spec.Pool})
		}
	}
	return kept
}

// holderOf describes who a lease is bound to.
func holderOf(pod *corev1.Pod, r agentapi.Attachment, link Link) v1alpha1.Holder {
	holder := v1alpha1.Holder{
		Namespace: pod.Namespace, Pod: pod.Name, PodUID: runtimeUID(pod),
		Interface: r.Interface, ContainerID: r.ContainerID,
		MAC: link.MAC.String(), Guarded: true,
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		holder.OwnerKind, holder.OwnerName = owner.Kind, owner.Name
	}
	return holder
}

// keepsItsName tells whether the holder's identity outlives the pod, so that
// its addresses are kept for the pod of the same name.
func keepsItsName(holder *v1alpha1.Holder) bool { return holder.OwnerKind == "StatefulSet" }
