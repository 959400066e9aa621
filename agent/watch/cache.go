// SPDX-License-Identifier: Apache-2.0

// Package watch restricts what the agent watches, and passes each change to its handler.
package watch

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/hostlink/cidr"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Cache restricts the caches to the objects that a node needs, so that an agent
// does not grow with the cluster. namespace is Fenceline's, and secret that of the claim key.
func Cache(node, namespace, secret string) cache.Options {
	named := fields.OneTermEqualSelector("metadata.name", node)
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:         {Field: fields.OneTermEqualSelector("spec.nodeName", node)},
			&corev1.Node{}:        {Field: named},
			&v1alpha1.LeaseHint{}: {Field: named},
			&corev1.Service{}:     {Field: fields.OneTermEqualSelector("spec.type", string(corev1.ServiceTypeLoadBalancer))},
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{namespace: {
				FieldSelector: fields.OneTermEqualSelector("metadata.name", secret),
			}}},
		},
	}
}

// Scheme has the groups of Kinds but Calico's, whose objects are read without types. A scheme of all
// groups of Kubernetes would take more memory.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(v1alpha1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, networkingv1.AddToScheme)
	return scheme, builder.AddToScheme(scheme)
}

// Kinds maps the kinds that the agent reads and writes to their resources. The
// agent does not ask the API server for them: it may be unreachable at the start,
// and the discovery of resources has no deadline.
func Kinds() meta.RESTMapper {
	// The owner of a pod is asked for without a version.
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{appsv1.SchemeGroupVersion, batchv1.SchemeGroupVersion})
	for _, kind := range []string{"IPPool", "IPLease", "LeaseHint", "ReservedIP", "IPSubnet", "Move"} {
		m.Add(v1alpha1.GroupVersion().WithKind(kind), meta.RESTScopeRoot)
	}
	for _, kind := range []string{"Node", "Namespace"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	for _, kind := range []string{"Pod", "Secret", "Service", "ConfigMap"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	m.Add(appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), meta.RESTScopeNamespace)
	m.Add(batchv1.SchemeGroupVersion.WithKind("Job"), meta.RESTScopeNamespace)
	m.Add(networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"), meta.RESTScopeRoot)
	m.Add(cidr.Calico(), meta.RESTScopeRoot)
	return m
}
