// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Errors of an Asker. Every other error is one of the API server, which may pass.
var (
	// ErrGone: the owner does not exist, or another object has its name.
	ErrGone = errors.New("it does not exist")
	// ErrNoAPI: the API server does not serve the owner's kind, for example because its CRD is missing.
	ErrNoAPI = errors.New("the API server does not serve this kind")
	// ErrNoRight: the rights of this program do not cover the owner's kind.
	ErrNoRight = errors.New("the controller has no right to get it")
	// ErrNoScale: the owner's kind has no scale subresource.
	ErrNoScale = errors.New("it has no scale subresource")
)

// Asker reads owners of any kind from the API server, past all caches. It needs the right "get" on the
// kind, and on its scale subresource. Safe for concurrent use.
type Asker struct {
	// Live reads objects from the API server.
	Live client.Reader
	// Scales gives access to subresources.
	Scales client.SubResourceClientConstructor
	// Mapper finds the version and the resource of a kind.
	Mapper meta.RESTMapper
	// Watches watches objects on the API server. Only FollowMigration needs it.
	Watches interface {
		Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error)
	}
}

// Get returns an owner. Its error wraps ErrGone, ErrNoAPI or ErrNoRight where one of them is the
// reason.
func (a Asker) Get(ctx context.Context, r Ref) (*unstructured.Unstructured, error) {
	o, err := a.object(r)
	if err != nil {
		return nil, err
	}
	if err := a.Live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, o); err != nil {
		return nil, why("get", r, err)
	}
	if r.UID != "" && o.GetUID() != r.UID {
		return nil, fmt.Errorf("get %s with UID %s: %w", r, r.UID, ErrGone)
	}
	return o, nil
}

// Replicas returns the number of pods that an owner wants, from its scale subresource. Its error
// wraps ErrGone, ErrNoAPI, ErrNoRight or ErrNoScale where one of them is the reason. A kind without
// the subresource and an owner that is gone look alike: call Get to tell them apart.
func (a Asker) Replicas(ctx context.Context, r Ref) (int32, error) {
	o, err := a.object(r)
	if err != nil {
		return 0, err
	}
	o.SetNamespace(r.Namespace)
	o.SetName(r.Name)
	// The client of an object without a Go type answers only with such an object.
	answer := &unstructured.Unstructured{}
	answer.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
	if err := a.Scales.SubResource("scale").Get(ctx, o, answer); err != nil {
		if apierrors.IsNotFound(err) && !namesObject(err) {
			return 0, fmt.Errorf("get the scale of %s: %w", r, ErrNoScale)
		}
		return 0, why("get the scale of", r, err)
	}
	var scale autoscalingv1.Scale
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, &scale); err != nil {
		return 0, fmt.Errorf("read the scale of %s: %w", r, err)
	}
	if r.UID != "" && scale.UID != r.UID {
		return 0, fmt.Errorf("get the scale of %s with UID %s: %w", r, r.UID, ErrGone)
	}
	return scale.Spec.Replicas, nil
}

// object returns an empty object of the owner's kind, in the version that the API server prefers.
func (a Asker) object(r Ref) (*unstructured.Unstructured, error) {
	mapping, err := a.Mapper.RESTMapping(r.GroupKind())
	if err != nil {
		return nil, why("find the API of", r, err)
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(mapping.GroupVersionKind)
	return o, nil
}

// why adds the reason to the error of a failed read.
func why(what string, r Ref, err error) error {
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err) && !namesObject(err):
		return fmt.Errorf("%s %s: %w", what, r, ErrNoAPI)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s %s: %w", what, r, ErrGone)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s %s: %w", what, r, ErrNoRight)
	}
	return fmt.Errorf("%s %s: %w", what, r, err)
}

// namesObject reports whether a NotFound is about an object. For a path that the API server does not
// serve, its answer is no Status, and client-go makes one with a cause of its own.
func namesObject(err error) bool {
	return !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

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
