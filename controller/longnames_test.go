// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// longNames: an event whose note is too long is refused, and nobody told.
func longNames(w world) {
	pool, node := strings.Repeat("p", 240), strings.Repeat("n", 240)
	w.readyNode(node)
	w.pool(pool, "10.28.0.0/24")
	pod := w.runningPod(strings.Repeat("w", 120), node)
	w.bound(pool, "10.28.0.2", pod)
	w.deletePod(pod, client.GracePeriodSeconds(0))
	w.waitQuarantined("10.28.0.2", v1alpha1.ReasonPodDeleted)
	w.waitEvent(pod.Namespace, "AddressReclaimed", pod.Name, "10.28.0.2", "PodDeleted")
}
