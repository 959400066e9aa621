// SPDX-License-Identifier: Apache-2.0

package owner

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// KeepsName reports whether the identity of a holder outlives its pod, so that its addresses are
// kept for the next pod of this identity.
//
// A StatefulSet makes pods of the same names again. The API group does not matter: a StatefulSet of
// another project has the same shape if its pod is called <name>-<ordinal>. The identity of a
// KubeVirt virtual machine is the machine, because each of its pods has another name.
func KeepsName(h *v1alpha1.Holder) bool {
	switch {
	case IsMachine(h):
		return true
	case h.OwnerKind != kindStatefulSet:
		return false
	case h.OwnerGroup == "" || h.OwnerGroup == groupApps:
		return true
	}
	_, ok := Ordinal(h.Pod, h.OwnerName)
	return ok
}

// PlaceOf returns the ordinal of a StatefulSet's pod, or nil. shares reports that the owner of the pod makes
// others like it, none of which has a place of its own. A number at the end of another pod's name says
// nothing.
func PlaceOf(pod metav1.Object) (ordinal *int64, shares bool) {
	ref, ok := Of(pod)
	if n, numbered := Ordinal(pod.GetName(), ref.Name); numbered && ref.Kind == kindStatefulSet {
		return &n, false
	}
	h := v1alpha1.Holder{OwnerGroup: ref.Group, OwnerKind: ref.Kind, OwnerName: ref.Name}
	isStatic := ref.Group == "" && ref.Kind == "Node"
	return nil, ok && !isStatic && !IsMachine(&h)
}

// IsMachine reports whether the holder is the pod of a KubeVirt virtual machine. Such a pod belongs to
// a VirtualMachineInstance, which has the name of its VirtualMachine.
func IsMachine(h *v1alpha1.Holder) bool {
	return h.OwnerGroup == groupKubeVirt && h.OwnerKind == kindInstance && h.OwnerName != ""
}

// MachineOf returns the name of the virtual machine of a holder, or "".
func MachineOf(h *v1alpha1.Holder) string {
	if !IsMachine(h) {
		return ""
	}
	return h.OwnerName
}

// MachinePod returns the holder of a pod that runs a virtual machine.
func MachinePod(namespace, pod, uid, machine string) v1alpha1.Holder {
	return v1alpha1.Holder{
		Namespace: namespace, Pod: pod, PodUID: uid,
		OwnerGroup: groupKubeVirt, OwnerKind: kindInstance, OwnerName: machine,
	}
}

// Same reports whether two holders have one identity: the namespace and the virtual machine, or else
// the namespace and the name of the pod.
func Same(a, b *v1alpha1.Holder) bool {
	switch {
	case a == nil || b == nil || a.Namespace != b.Namespace || IsMachine(a) != IsMachine(b):
		return false
	case IsMachine(a):
		return a.OwnerName == b.OwnerName
	}
	return a.Pod == b.Pod
}

// Identity names the identity of a holder for people.
func Identity(h *v1alpha1.Holder) string {
	if IsMachine(h) {
		return "virtual machine " + h.Namespace + "/" + h.OwnerName
	}
	return "pod " + h.Namespace + "/" + h.Pod
}

// ConfigHash is the annotation of a mirror pod with the UID that the kubelet gives to the runtime for
// its static pod. The mirror pod's own UID is another one.
const ConfigHash = "kubernetes.io/config.hash"

// StaticUID returns the UID by which the runtime knows a static pod, from the annotations of its mirror
// pod; empty if they are those of another pod. Anybody may write ConfigHash. But the API server lets
// nobody add the annotation of a mirror pod to a pod that exists, and the kubelet ends mirror pods that
// it has not made.
func StaticUID(annotations map[string]string) string {
	if hash := annotations[ConfigHash]; annotations[corev1.MirrorPodAnnotationKey] == hash {
		return hash
	}
	return ""
}
