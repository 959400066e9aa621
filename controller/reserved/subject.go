// SPDX-License-Identifier: Apache-2.0

package reserved

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// machine is what is known of a virtual machine.
type machine struct {
	missing bool
	err     error
	at      time.Time
}

// missing names the one for whom addresses are kept, if there is no such object.
func (r *Reconciler) missing(ctx context.Context, f *v1alpha1.ReservedFor) (string, error) {
	if f == nil {
		return "", nil
	}
	name := f.String()
	var err error
	switch {
	case f.VirtualMachine != "":
		m := r.machine(ctx, client.ObjectKey{Namespace: f.Namespace, Name: f.VirtualMachine})
		if m.err != nil {
			return "", fmt.Errorf("read %s: %w", name, m.err)
		}
		if m.missing {
			return name, nil
		}
		return "", nil
	case f.StatefulSet != "":
		err = r.Client.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: f.StatefulSet}, &appsv1.StatefulSet{}, client.UnsafeDisableDeepCopy)
		name += " of Kubernetes itself"
	case f.Pod != "":
		// The scheme has the type of the pods in the cache.
		pod, unknown := r.Client.Scheme().New(corev1.SchemeGroupVersion.WithKind("Pod"))
		if unknown != nil {
			return "", fmt.Errorf("read %s: %w", name, unknown)
		}
		err = r.Client.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: f.Pod}, pod.(client.Object), client.UnsafeDisableDeepCopy)
	default:
		ns := &metav1.PartialObjectMetadata{}
		ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		err = r.Client.Get(ctx, client.ObjectKey{Name: f.Namespace}, ns, client.UnsafeDisableDeepCopy)
	}
	switch {
	case apierrors.IsNotFound(err):
		return name, nil
	case err != nil:
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return "", nil
}

// machine looks for a virtual machine, at most once in lookEvery.
func (r *Reconciler) machine(ctx context.Context, key client.ObjectKey) machine {
	now := r.Clock.Now()
	if m, ok := r.machines[key]; ok && now.Sub(m.at) < lookEvery {
		return m
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine"})
	err := r.Live.Get(ctx, key, o)
	m := machine{at: now, missing: apierrors.IsNotFound(err) || meta.IsNoMatchError(err)}
	if !m.missing {
		m.err = err
	}
	if r.machines == nil {
		r.machines = map[client.ObjectKey]machine{}
	}
	r.machines[key] = m
	return m
}
