// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Look asks the API server about the owner of a holder with a lasting identity. If a retry would
// not help, the view is Unknown with a Lack. Any other failure is an error.
func (a Asker) Look(ctx context.Context, h *v1alpha1.Holder) (View, error) {
	ref, ok := OfHolder(h)
	if !ok || !KeepsName(h) {
		return View{}, nil
	}
	look := a.lookAtSet
	if IsMachine(h) {
		ref.Kind = kindMachine
		look = a.lookAtMachine
	}
	v, err := look(ctx, ref)
	switch {
	case errors.Is(err, ErrGone):
		return View{Ref: ref}, nil
	case err == nil:
		return v, nil
	}
	for lack, is := range map[Lack]error{LackAPI: ErrNoAPI, LackRight: ErrNoRight, LackScale: ErrNoScale} {
		if errors.Is(err, is) {
			return View{Ref: ref, Unknown: err.Error(), Lack: lack}, nil
		}
	}
	return View{}, err
}

func (a Asker) lookAtSet(ctx context.Context, r Ref) (View, error) {
	set, err := a.Get(ctx, r)
	if err != nil {
		return View{}, err
	}
	r.UID = set.GetUID()
	v := View{Ref: r, Exists: true, Annotations: templateAnnotations(set)}
	if v.Ordinals.Replicas, err = a.Replicas(ctx, r); err != nil {
		return View{}, err
	}
	if start, ok, _ := unstructured.NestedInt64(set.Object, "spec", "ordinals", "start"); ok {
		v.Ordinals.Start = int32(start)
	}
	if v.Ordinals.Reserved, err = reserved(set); err != nil {
		v.Unknown, v.Lack = fmt.Sprintf("%s: %s", r, err), LackSense
	}
	return v, nil
}

// reserved reads spec.reserveOrdinals: integers, and in later versions also ranges.
func reserved(set *unstructured.Unstructured) ([]Range, error) {
	field, _, _ := unstructured.NestedFieldNoCopy(set.Object, "spec", "reserveOrdinals")
	entries, _ := field.([]any)
	var all []Range
	for _, entry := range entries {
		r, err := ParseRange(fmt.Sprint(entry))
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// lookAtMachine looks at a virtual machine and its instance, which have one name. An instance without
// a machine is an owner of its own: no other instance of its name follows unless a person makes one.
func (a Asker) lookAtMachine(ctx context.Context, r Ref) (View, error) {
	instanceRef := r
	instanceRef.Kind = kindInstance
	instance, err := a.Get(ctx, instanceRef)
	if err != nil && !errors.Is(err, ErrGone) {
		return View{}, err
	}
	machine, err := a.Get(ctx, r)
	switch {
	case errors.Is(err, ErrGone) && instance != nil:
		return View{Ref: instanceRef, Exists: true, Machine: &Machine{HasInstance: true}, Annotations: instance.GetAnnotations()}, nil
	case err != nil:
		return View{}, err
	}
	m := &Machine{HasInstance: instance != nil}
	m.RunStrategy, _, _ = unstructured.NestedString(machine.Object, "spec", "runStrategy")
	if running, ok, _ := unstructured.NestedBool(machine.Object, "spec", "running"); ok {
		m.RunStrategy = runHalted
		if running {
			m.RunStrategy = runAlways
		}
	}
	return View{Ref: r, Exists: true, Machine: m, Annotations: templateAnnotations(machine)}, nil
}

func templateAnnotations(o *unstructured.Unstructured) map[string]string {
	all, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "annotations")
	return all
}

// ViewOf returns the view of one of Kubernetes' own StatefulSets. set is nil if it does not exist.
func ViewOf(r Ref, set *appsv1.StatefulSet) View {
	if set == nil {
		return View{Ref: r}
	}
	v := View{Ref: r, Exists: true, Annotations: set.Spec.Template.Annotations}
	v.Ordinals.Replicas = ptr.Deref(set.Spec.Replicas, 1) // the API's default
	if set.Spec.Ordinals != nil {
		v.Ordinals.Start = set.Spec.Ordinals.Start
	}
	return v
}
