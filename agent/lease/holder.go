// SPDX-License-Identifier: Apache-2.0

package lease

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
)

// HolderOf describes the holder that the lease of a pod's interface names.
func HolderOf(pod *corev1.Pod, a agentapi.Attachment, mac string) v1alpha1.Holder {
	holder := v1alpha1.Holder{
		Namespace: pod.Namespace, Pod: pod.Name, PodUID: owner.UID(pod),
		Interface: a.Interface, ContainerID: a.ContainerID, MAC: mac, Guarded: true,
	}
	if ref, ok := owner.Of(pod); ok {
		holder.OwnerGroup, holder.OwnerKind, holder.OwnerName = ref.Group, ref.Kind, ref.Name
	}
	return holder
}

// AgainFor returns the request to record the lease of an address of an entry again. Its pod lives. A
// wrong annotation counts as none: ADD has refused wrong annotations, so it was changed since.
func AgainFor(pod *corev1.Pod, e *attachment.Entry, address attachment.Address) Request {
	holder := HolderOf(pod, e.Attachment(), e.MAC)
	holder.Guarded = !e.Unguarded && !e.Bypasses
	r := Request{Pool: address.Pool, Network: address.Network, Addr: address.Addr, Parent: e.Parent, Holder: holder}
	switch {
	case !owner.KeepsName(&holder):
	case address.Static:
		asked, _ := v1alpha1.ParseFixedAddress(pod.Annotations)
		r.Retention = asked.Retention
	default:
		r.Retention = &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainNone}
	}
	return r
}

// IsOfLastBoot reports whether a lease of a node is bound to a pod that ended with the last boot before
// a session.
func IsOfLastBoot(s *v1alpha1.IPLeaseSpec, node, session string) bool {
	return s.State == v1alpha1.StateBound && s.NodeName == node && s.Holder != nil && !SameBoot(s.Session, session)
}
