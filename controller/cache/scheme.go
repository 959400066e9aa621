// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
)

// Scheme returns the types that the controller reads and writes. A v1 Pod has the type podview.Pod.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion,
		&podview.Pod{}, &podview.PodList{}, &corev1.Node{}, &corev1.NodeList{}, &corev1.Secret{}, &corev1.SecretList{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	if err := errors.Join(appsv1.AddToScheme(scheme), batchv1.AddToScheme(scheme), autoscalingv1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register the types of Kubernetes: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the types of Fenceline: %w", err)
	}
	return scheme, nil
}
