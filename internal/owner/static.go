// SPDX-License-Identifier: Apache-2.0

package owner

import corev1 "k8s.io/api/core/v1"

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
