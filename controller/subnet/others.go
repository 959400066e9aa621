// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/demand"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/owner"
)

// errBare is the reason for which the number of pods of a pod without owner is not known.
var errBare = errors.New("a pod without an owner has no replicas")

// others returns the applications that the controller learns of by their pods: those of other API
// groups, ReplicaSets, and pods without an owner. They are counted by their scale subresource.
func (r *Reconciler) others(ctx context.Context) ([]Application, error) {
	var pods podview.PodList
	if err := r.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var asking []*podview.Pod
	for i := range pods.Items {
		if _, ok, _ := demand.Parse(pods.Items[i].Annotations); ok && !pods.Items[i].Spec.HostNetwork {
			asking = append(asking, &pods.Items[i])
		}
	}
	// The newest pod has the newest annotations.
	slices.SortFunc(asking, func(a, b *podview.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	seen, above := map[Identity]bool{}, map[types.UID]owner.Ref{}
	var all []Application
	for _, pod := range asking {
		ref, err := r.applicationOf(ctx, pod, above)
		if err != nil {
			return nil, err
		}
		if seen[IdentityOf(ref)] || isTemplated(ref.Group, ref.Kind) {
			continue
		}
		seen[IdentityOf(ref)] = true
		app := Application{Ref: ref, Created: pod.CreationTimestamp}
		app.Demand, _, app.Problem = demand.Parse(pod.Annotations)
		if ref.Kind == "Pod" && ref.Group == "" {
			app.Uncounted = errBare
		} else {
			replicas, err := r.replicas(ctx, ref)
			switch {
			case err == nil:
				app.Replicas = replicas
			case errors.Is(err, owner.ErrGone):
				continue
			case isUncounted(err):
				app.Uncounted = err
			default:
				return nil, err
			}
		}
		all = append(all, app)
	}
	r.above = above
	return all, nil
}

// replicas returns the number of pods that an owner wants. A custom resource without a scale subresource
// answers as one that is gone, so its owner is asked for then. An owner that may not be read has pods,
// and exists.
func (r *Reconciler) replicas(ctx context.Context, ref owner.Ref) (int, error) {
	n, err := r.Owners.Replicas(ctx, ref)
	if !errors.Is(err, owner.ErrGone) {
		return int(n), err
	}
	if _, err := r.Owners.Get(ctx, ref); err != nil && !isUncounted(err) {
		return 0, err
	}
	return 0, fmt.Errorf("get the scale of %s: %w", ref, owner.ErrNoScale)
}

// applicationOf returns the application of a pod. The owner of a ReplicaSet is read once.
func (r *Reconciler) applicationOf(ctx context.Context, pod *podview.Pod, above map[types.UID]owner.Ref) (owner.Ref, error) {
	direct, ok := owner.Of(pod)
	if ok && isTemplated(direct.Group, direct.Kind) {
		return direct, nil
	}
	if ref, ok := r.above[direct.UID]; ok && direct.UID != "" {
		above[direct.UID] = ref
		return ref, nil
	}
	ref, err := r.Owners.Application(ctx, pod)
	if err == nil && direct.UID != "" {
		above[direct.UID] = ref
	}
	return ref, err
}

// unsure returns the applications of pools that have no template and no pods, and may exist.
func (r *Reconciler) unsure(ctx context.Context, pools []v1alpha1.IPPool, known []Application) (map[Identity]bool, error) {
	all, seen := map[Identity]bool{}, map[Identity]bool{}
	for i := range known {
		seen[IdentityOf(known[i].Ref)] = true
	}
	for i := range pools {
		a := pools[i].Spec.Application
		if pools[i].Spec.IPSubnet == "" || a == nil || isTemplated(a.APIGroup, a.Kind) || seen[identityOf(a)] {
			continue
		}
		id := identityOf(a)
		seen[id] = true
		exists, err := r.exists(ctx, id)
		if err != nil {
			return nil, err
		}
		all[id] = exists
	}
	return all, nil
}

// exists reports whether an application without pods exists. An application without a scale subresource
// ends with its last pod.
func (r *Reconciler) exists(ctx context.Context, id Identity) (bool, error) {
	if id.Kind == "Pod" && id.Group == "" {
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: id.Namespace, Name: id.Name}, &podview.Pod{})
		return err == nil, client.IgnoreNotFound(err)
	}
	_, err := r.Owners.Replicas(ctx, owner.Ref{Group: id.Group, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name})
	switch {
	case errors.Is(err, owner.ErrGone), isUncounted(err), apierrors.IsNotFound(err):
		return false, nil
	}
	return err == nil, err
}
