// SPDX-License-Identifier: Apache-2.0

// Package cache defines the controller's cache of the cluster: the kept fields of each object, and
// the indexes of leases.
package cache

import (
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
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
		NewInformer:      newInformer,
		ByObject: map[client.Object]cache.ByObject{
			&podview.Pod{}:        transform(slimPod),
			&corev1.Node{}:        transform(slimNode),
			&corev1.Service{}:     selected(transform(slimService), ServicesByType, string(corev1.ServiceTypeLoadBalancer)),
			&appsv1.StatefulSet{}: transform(slimStatefulSet),
			&appsv1.Deployment{}:  transform(slimDeployment),
			&appsv1.DaemonSet{}:   transform(slimDaemonSet),
			&batchv1.Job{}:        transform(slimJob),
			&batchv1.CronJob{}:    transform(slimCronJob),
			&v1alpha1.IPLease{}:   transform(slimLease),
			&v1alpha1.LeaseHint{}: transform(slimHint),
		},
	}
}

// newInformer returns an informer. That of leases has no index of namespaces: all would be under one key.
func newInformer(lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
	if _, ok := o.(*v1alpha1.IPLease); ok {
		delete(by, toolscache.NamespaceIndex)
	}
	return toolscache.NewSharedIndexInformer(lw, o, resync, by)
}

// transform reduces each object to the result of slim. A tombstone, which stands for an object that
// was deleted during an outage of the watch, stays as it is.
func transform[T client.Object](slim func(T) T) cache.ByObject {
	return cache.ByObject{Transform: func(o any) (any, error) {
		if object, ok := o.(T); ok {
			return slim(object), nil
		}
		return o, nil
	}}
}

// selected restricts what is cached to the objects with a value in a field.
func selected(o cache.ByObject, field, value string) cache.ByObject {
	o.Field = fields.OneTermEqualSelector(field, value)
	return o
}

// Scheme returns the types that the controller reads and writes. A v1 Pod has the type podview.Pod.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion,
		&podview.Pod{}, &podview.PodList{}, &corev1.Node{}, &corev1.NodeList{},
		&corev1.Service{}, &corev1.ServiceList{}, &corev1.Secret{}, &corev1.SecretList{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	if err := errors.Join(appsv1.AddToScheme(scheme), batchv1.AddToScheme(scheme), autoscalingv1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register the types of Kubernetes: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the types of Fenceline: %w", err)
	}
	return scheme, nil
}
