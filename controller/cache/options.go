// SPDX-License-Identifier: Apache-2.0

// Package cache defines the controller's cache of the cluster: the kept fields of each object, and
// the indexes of leases.
package cache

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
)

// Options returns the options of the manager's cache. It holds every pod, lease, pool, node and
// application of the cluster, so it keeps only the fields that the controller reads.
func Options() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&podview.Pod{}:        transform(slimPod),
			&corev1.Node{}:        transform(slimNode),
			&appsv1.StatefulSet{}: transform(slimStatefulSet),
			&appsv1.Deployment{}:  transform(slimDeployment),
			&appsv1.DaemonSet{}:   transform(slimDaemonSet),
			&batchv1.Job{}:        transform(slimJob),
			&batchv1.CronJob{}:    transform(slimCronJob),
			&v1alpha1.IPLease{}:   transform(slimLease),
		},
	}
}

// transform keeps of each object what slim returns. The mark of an object that was deleted while there
// was no watch stays as it is.
func transform[T client.Object](slim func(T) T) cache.ByObject {
	return cache.ByObject{Transform: func(o any) (any, error) {
		if object, ok := o.(T); ok {
			return slim(object), nil
		}
		return o, nil
	}}
}
