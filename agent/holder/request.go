// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/internal/poolset"
)

// surroundings has the input of the choice of pools. Its objects are the cache's, and read-only.
type surroundings struct {
	request  ipam.Request
	pools    []v1alpha1.IPPool
	reserved poolset.Set
	// runtime is the name and version of the container runtime.
	runtime string
}

func (h *Holders) surroundings(ctx context.Context, r agentapi.AddRequest, pod *corev1.Pod) (surroundings, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := h.Cache.Get(ctx, types.NamespacedName{Name: pod.Namespace}, ns, client.UnsafeDisableDeepCopy); err != nil {
		return surroundings{}, fmt.Errorf("read namespace %s: %w", pod.Namespace, err)
	}
	self := &corev1.Node{}
	if err := h.Cache.Get(ctx, types.NamespacedName{Name: h.Self.Name}, self, client.UnsafeDisableDeepCopy); err != nil {
		return surroundings{}, fmt.Errorf("read node %s: %w", h.Self.Name, err)
	}
	pools, subnets := &v1alpha1.IPPoolList{}, &v1alpha1.IPSubnetList{}
	for _, all := range []struct {
		of   string
		list client.ObjectList
	}{{"pools", pools}, {"IPSubnets", subnets}} {
		if err := h.Cache.List(ctx, all.list, client.UnsafeDisableDeepCopy); err != nil {
			return surroundings{}, fmt.Errorf("list %s: %w", all.of, err)
		}
	}
	reservations, err := poolset.ReadReserved(ctx, h.Cache)
	if err != nil {
		return surroundings{}, err
	}
	multus := ipam.Multus{}
	if h.Multus != nil {
		if multus, err = h.Multus(); err != nil {
			return surroundings{}, err
		}
	}
	return surroundings{
		request: ipam.Request{
			Pod:                  podOf(pod),
			NamespaceLabels:      ns.Labels,
			NamespaceAnnotations: ns.Annotations,
			NodeName:             h.Self.Name,
			NodeLabels:           self.Labels,
			Multus:               multus,
			Interface:            r.Interface,
			Earlier:              earlier(h.Attachments.OfPod(owner.UID(pod)), r.Attachment, pools.Items),
			ConfigPools:          ipam.ConfigPools{V4: r.Network.DefaultIPv4IPPool, V6: r.Network.DefaultIPv6IPPool},
			Subnets:              ipam.Subnets{All: subnets.Items, V4: h.DefaultSubnets.V4, V6: h.DefaultSubnets.V6},
			Reservations:         reservations,
			IPs:                  r.IPs,
		},
		pools: pools.Items, reserved: reservations.Set(),
		runtime: self.Status.NodeInfo.ContainerRuntimeVersion,
	}, nil
}

// earlier returns the other interfaces of a sandbox, read from the entries of its pod.
func earlier(entries []*attachment.Entry, of agentapi.Attachment, pools []v1alpha1.IPPool) []ipam.Interface {
	var found []ipam.Interface
	for _, e := range entries {
		if e.ContainerID != of.ContainerID || e.Interface == of.Interface {
			continue
		}
		i := ipam.Interface{Name: e.Interface}
		for _, address := range e.Addresses {
			i.Addresses = append(i.Addresses, ipam.Kept{Addr: address.Addr, Pool: address.Pool})
			at := slices.IndexFunc(pools, func(p v1alpha1.IPPool) bool { return p.Name == address.Pool })
			if at < 0 {
				continue
			}
			if subnet, err := poolset.Subnet(&pools[at]); err == nil {
				i.Subnets = append(i.Subnets, subnet)
			}
		}
		found = append(found, i)
	}
	return found
}

// belongs finds the application of the pod if a rule may need it. One ADD reads it once.
func (a *add) belongs(ctx context.Context, s *surroundings) error {
	ofApplication := func(p v1alpha1.IPPool) bool {
		return p.Spec.Application != nil && p.Spec.Application.Namespace == a.pod.Namespace
	}
	if !ipam.AsksForSubnets(s.request.Pod, s.request.Subnets) && !slices.ContainsFunc(s.pools, ofApplication) {
		return nil
	}
	if a.application == nil {
		ref, err := a.h.Owners.Application(ctx, a.pod)
		if err != nil {
			return fmt.Errorf("find the application of pod %s/%s: %w", a.pod.Namespace, a.pod.Name, err)
		}
		a.application = &v1alpha1.Application{APIGroup: ref.Group, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
	}
	s.request.Application = *a.application
	return nil
}

// pod returns the pod of a call. It reads the API server if the runtime is ahead of the cache, or
// if a name has come back with another UID. The pod may belong to the cache: it is read-only.
func (h *Holders) pod(ctx context.Context, p agentapi.Pod) (*corev1.Pod, error) {
	name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	for _, reader := range []client.Reader{h.Cache, h.Reader} {
		// Each read has its own object. Otherwise the answer of the API server would be decoded into
		// the object of the cache.
		pod := &corev1.Pod{}
		err := reader.Get(ctx, name, pod, client.UnsafeDisableDeepCopy)
		switch {
		case err == nil && owner.IsUID(pod, p.UID):
			return pod, nil
		case err != nil && client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("read pod %s: %w", name, err)
		}
	}
	return nil, refusal.New(refusal.TryAgain, "pod %s with UID %s does not exist", name, p.UID)
}

// podOf returns the part of a pod that the choice of pools needs.
func podOf(pod *corev1.Pod) ipam.Pod {
	p := ipam.Pod{Namespace: pod.Namespace, Name: pod.Name, Labels: pod.Labels, Annotations: pod.Annotations}
	p.Ordinal, p.Shares = owner.PlaceOf(pod)
	ref, _ := owner.Of(pod)
	p.OwnerKind, p.OwnerName = ref.Kind, ref.Name
	return p
}

// isUnmade reports whether an error means that the controller has not made a pool yet.
func isUnmade(err error) bool {
	_, ok := errors.AsType[*ipam.PoolAwaitedError](err)
	return ok
}
