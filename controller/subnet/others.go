// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/internal/owner"
)

// errBare is the reason for which the number of pods of a pod without owner is not known.
var errBare = errors.New("a pod without an owner has no replicas")

// others returns the applications that the controller learns of by their pods: those of other API
// groups, ReplicaSets, and pods without an owner. They are counted by their scale subresource. unread are
// the namespaces with pods whose application could not be read.
func (r *Reconciler) others(ctx context.Context) (all []Application, unread map[string]bool, err error) {
	var pods podview.PodList
	if err := r.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list pods: %w", err)
	}
	unread = map[string]bool{}
	refs, newest, count := map[Identity]owner.Ref{}, map[Identity]*podview.Pod{}, map[Identity]int{}
	above := map[types.UID]owner.Ref{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if _, asks, _ := demand.Parse(pod.Annotations); !asks || pod.Spec.HostNetwork || pod.IsFinished() {
			continue
		}
		ref, err := r.applicationOf(ctx, pod, above)
		switch {
		case ctx.Err() != nil:
			return nil, nil, fmt.Errorf("find the application of pod %s/%s: %w", pod.Namespace, pod.Name, ctx.Err())
		case err != nil:
			unread[pod.Namespace] = true
			continue
		case isTemplated(ref.Group, ref.Kind):
			continue
		}
		id := IdentityOf(ref)
		count[id]++
		if old := newest[id]; old == nil || isNewer(pod, old) {
			refs[id], newest[id] = ref, pod
		}
	}
	r.above = above
	for id, pod := range newest {
		ref := refs[id]
		app := Application{Ref: ref, Created: pod.CreationTimestamp}
		app.Demand, _, app.Problem = demand.Parse(pod.Annotations)
		if ref.Kind == "Pod" && ref.Group == "" {
			app.Uncounted = errBare
		} else {
			app.Replicas, app.Uncounted = r.answers.ask(ctx, question{ref, pod.UID, count[id]}, r.Clock.Now(), r.replicas)
		}
		switch {
		case ctx.Err() != nil:
			return nil, nil, fmt.Errorf("count the pods of %s: %w", ref, ctx.Err())
		case errors.Is(app.Uncounted, owner.ErrGone):
			continue
		}
		all = append(all, app)
	}
	return all, unread, nil
}

// isNewer reports whether a pod has newer annotations than another one.
func isNewer(a, b *podview.Pod) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name)) > 0
}

// replicas returns the number of pods that an owner wants. For a custom resource without a scale
// subresource, the API server answers as if it were gone, so replicas asks for the owner then. An
// owner that may not be read has pods, so it exists.
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

// applicationOf returns the application of a pod, and notes it in above. The owner of a ReplicaSet is read
// once.
func (r *Reconciler) applicationOf(ctx context.Context, pod *podview.Pod, above map[types.UID]owner.Ref) (owner.Ref, error) {
	direct, ok := owner.Of(pod)
	if ok && isTemplated(direct.Group, direct.Kind) {
		return direct, nil
	}
	ref, known := above[direct.UID]
	if !known {
		ref, known = r.above[direct.UID]
	}
	var err error
	if !known {
		ref, err = r.Owners.Application(ctx, pod)
	}
	if err == nil && direct.UID != "" {
		above[direct.UID] = ref
	}
	return ref, err
}

// unsure has the applications of pools with neither a template nor pods, true if one may exist.
func (r *Reconciler) unsure(ctx context.Context, pools []v1alpha1.IPPool, known []Application, unread map[string]bool) (map[Identity]bool, error) {
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
		all[id] = unread[id.Namespace] || r.mayExist(ctx, id)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("look for %s %s/%s: %w", id.Kind, id.Namespace, id.Name, ctx.Err())
		}
	}
	return all, nil
}

// mayExist reports whether an application without pods may exist. An application without a scale
// subresource ends with its last pod.
func (r *Reconciler) mayExist(ctx context.Context, id Identity) bool {
	if id.Kind == "Pod" && id.Group == "" {
		pod := &podview.Pod{}
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: id.Namespace, Name: id.Name}, pod)
		return !apierrors.IsNotFound(err) && !pod.IsFinished()
	}
	ref := owner.Ref{Group: id.Group, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name}
	_, err := r.answers.ask(ctx, question{ref: ref}, r.Clock.Now(), func(ctx context.Context, ref owner.Ref) (int, error) {
		n, err := r.Owners.Replicas(ctx, ref)
		return int(n), err
	})
	return err == nil || isPassing(err)
}
