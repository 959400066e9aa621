// SPDX-License-Identifier: Apache-2.0

package event

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Pod names a pod for an event. The pod need not exist any more.
func Pod(namespace, name, uid string) runtime.Object {
	p := &corev1.Pod{}
	p.APIVersion, p.Kind = "v1", "Pod"
	p.Namespace, p.Name, p.UID = namespace, name, types.UID(uid)
	return p
}
