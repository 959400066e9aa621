// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kinds between an application and its pods.
const (
	kindReplicaSet = "ReplicaSet"
	kindJob        = "Job"
	kindCronJob    = "CronJob"
	kindNode       = "Node"
	groupBatch     = "batch"
)

// Application returns the application that a pod belongs to: its owner, or the owner of its ReplicaSet or
// Job. A pod without an owner, and a static pod, is an application itself. It reads at most one object.
func (a Asker) Application(ctx context.Context, pod metav1.Object) (Ref, error) {
	direct, ok := Of(pod)
	if !ok || direct.Kind == kindNode && direct.Group == "" {
		return Ref{Kind: "Pod", Namespace: pod.GetNamespace(), Name: pod.GetName(), UID: pod.GetUID()}, nil
	}
	if !direct.isBetween() {
		return direct, nil
	}
	o, err := a.Get(ctx, direct)
	if errors.Is(err, ErrGone) {
		return direct, nil // it was the application, or its pods end as well
	}
	if err != nil {
		return Ref{}, err
	}
	above, ok := Of(o)
	if !ok || direct.Kind == kindJob && (above.Group != groupBatch || above.Kind != kindCronJob) {
		return direct, nil
	}
	return above, nil
}

// isBetween reports whether pods of the owner may belong to the owner of the owner.
func (r Ref) isBetween() bool {
	return r.Group == groupApps && r.Kind == kindReplicaSet || r.Group == groupBatch && r.Kind == kindJob
}
