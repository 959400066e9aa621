// SPDX-License-Identifier: Apache-2.0

// Package owner knows the owners of pods. It decides for whom the address of a pod is kept, and which
// pods an owner wants. The decisions are pure functions; Asker asks the API server for their input.
package owner

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// The API groups and kinds of owners with rules of their own.
const (
	groupApps     = "apps"
	groupKubeVirt = "kubevirt.io"

	kindStatefulSet = "StatefulSet"
	kindInstance    = "VirtualMachineInstance"
	kindMachine     = "VirtualMachine"
)

// Ref names an owner. The version of its API is left to the API server.
type Ref struct {
	Group, Kind, Namespace, Name string
	// UID is empty if it is not known.
	UID types.UID
}

// Of returns the controlling owner of an object. ok is false if the object has none.
func Of(o metav1.Object) (ref Ref, ok bool) {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil {
		return Ref{}, false
	}
	group := ""
	if gv, err := schema.ParseGroupVersion(owner.APIVersion); err == nil {
		group = gv.Group
	}
	return Ref{Group: group, Kind: owner.Kind, Namespace: o.GetNamespace(), Name: owner.Name, UID: owner.UID}, true
}

// OfHolder returns the owner that a lease records. ok is false if it records none.
func OfHolder(h *v1alpha1.Holder) (ref Ref, ok bool) {
	if h == nil || h.OwnerKind == "" || h.OwnerName == "" {
		return Ref{}, false
	}
	ref = Ref{Group: h.OwnerGroup, Kind: h.OwnerKind, Namespace: h.Namespace, Name: h.OwnerName}
	if ref.Group == "" && ref.Kind == kindStatefulSet {
		ref.Group = groupApps // recorded by a version that knew no other group
	}
	return ref, true
}

// IsApps reports whether the owner is a StatefulSet of Kubernetes itself.
func (r Ref) IsApps() bool { return r.Group == groupApps && r.Kind == kindStatefulSet }

// GroupKind returns the kind of the owner with its API group.
func (r Ref) GroupKind() schema.GroupKind { return schema.GroupKind{Group: r.Group, Kind: r.Kind} }

// Application returns the owner as a record names it, without an interface.
func (r Ref) Application() v1alpha1.Application {
	return v1alpha1.Application{APIGroup: r.Group, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

// String names the owner for people: "StatefulSet shop/web", or "StatefulSet.apps.kruise.io shop/web".
func (r Ref) String() string {
	kind := r.Kind
	if r.Group != groupApps && r.Group != "" {
		kind += "." + r.Group
	}
	return kind + " " + r.Namespace + "/" + r.Name
}
