// SPDX-License-Identifier: Apache-2.0

package reserved

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// answer is what is known of an object that the cache does not have.
type answer struct {
	missing bool
	err     error
	at      time.Time
}

// missing names the one for whom addresses are kept, or who may speak for them, if there is no such object.
func (r *Reconciler) missing(ctx context.Context, s *v1alpha1.ReservedIPSpec) (string, error) {
	f := s.For
	if v := s.Virtual; v != nil {
		name := "pod with " + labels.FormatLabels(v.MatchLabels) + " in namespace " + v.Namespace
		return r.ask(name, func() (bool, error) {
			pods := &metav1.PartialObjectMetadataList{}
			pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
			err := r.Live.List(ctx, pods, client.InNamespace(v.Namespace), client.MatchingLabels(v.MatchLabels), client.Limit(1))
			return len(pods.Items) == 0, err
		})
	}
	if f == nil || f.MAC != "" {
		return "", nil
	}
	name := f.String()
	var err error
	switch {
	case f.VirtualMachine != "":
		return r.ask(name, func() (bool, error) {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine"})
			err := r.Live.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: f.VirtualMachine}, o)
			missing := apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
			if missing {
				err = nil
			}
			return missing, err
		})
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

// ask returns the name of an object if it is missing. It looks for it at most once in lookEvery.
func (r *Reconciler) ask(name string, look func() (missing bool, err error)) (string, error) {
	now := r.Clock.Now()
	a, ok := r.asked[name]
	if !ok || now.Sub(a.at) >= lookEvery {
		a.at = now
		a.missing, a.err = look()
		if r.asked == nil {
			r.asked = map[string]answer{}
		}
		r.asked[name] = a
	}
	switch {
	case a.err != nil:
		return "", fmt.Errorf("read %s: %w", name, a.err)
	case a.missing:
		return name, nil
	}
	return "", nil
}

// outside returns a problem for each virtual address that is in the subnet of no pool.
func outside(spec *v1alpha1.ReservedIPSpec, pools []v1alpha1.IPPool) (err error) {
	if spec.Virtual == nil {
		return nil
	}
	for i, text := range spec.IPs {
		addr, bad := netip.ParseAddr(text)
		if bad == nil && !slices.ContainsFunc(pools, func(p v1alpha1.IPPool) bool { return p.Reaches(spec.Network, addr) }) {
			network := "without a network"
			if spec.Network != "" {
				network = "of network " + spec.Network
			}
			err = errors.Join(err, fmt.Errorf("spec.ips[%d]: no pool %s has %s in its subnet, so no pod may speak for it", i, network, addr))
		}
	}
	return err
}
