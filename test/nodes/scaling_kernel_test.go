// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/owners"
)

// scalable is an application and its pods.
type scalable struct {
	object client.Object
	kind   schema.GroupVersionKind
	pods   []*nodes.Sandbox
	made   int
}

// scale writes the replicas, and makes or ends the pods as the application's controller does.
func (a *scalable) scale(ctx context.Context, c *nodes.Cluster, replicas int) error {
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	if err := c.Patch(ctx, a.object, patch); err != nil {
		return err
	}
	for len(a.pods) > replicas {
		last := a.pods[len(a.pods)-1]
		a.pods = a.pods[:len(a.pods)-1]
		if err := last.Finish(ctx); err != nil {
			return err
		}
	}
	for len(a.pods) < replicas {
		number := len(a.pods)
		if a.kind.Kind == "Deployment" {
			number = a.made // another name for each pod
		}
		a.made++
		n := c.Nodes[rand.IntN(len(c.Nodes))]
		pod, err := n.NewPod(ctx, fmt.Sprintf("%s-%d", a.object.GetName(), number), func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(a.object, a.kind)}
		})
		if err != nil {
			return err
		}
		s, err := n.Begin(ctx, pod)
		if err != nil {
			return err
		}
		a.pods = append(a.pods, s)
	}
	return nil
}

// Six applications share a pool of 18 addresses. They scale at random, up to the whole pool, while
// the controller is killed. The leases are those of the pods, and none is left at the end.
func TestApplicationsThatScaleAtRandomShareAPool(t *testing.T) {
	ctx, c := cluster(t, 4*nodes.Limit, 3)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.20-10.66.0.37")
	check.OK(t, owners.Install(ctx, c.Server.Admin(), owners.StatefulSets()))
	c.StartController()
	var all []*scalable
	for _, n := range []string{"1", "2"} {
		foreign := owners.StatefulSet(nodes.Shop, "foreign"+n, 0)
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: nodes.Shop, Name: "web" + n}}
		set, like := webSet(), webSet().Spec
		set.Name, set.Spec.Replicas, like.Replicas = "db"+n, ptr.To[int32](0), ptr.To[int32](0)
		deployment.Spec = appsv1.DeploymentSpec{Replicas: like.Replicas, Selector: like.Selector, Template: like.Template}
		for _, o := range []client.Object{foreign, deployment, set} {
			check.OK(t, c.Create(ctx, o))
		}
		all = append(all, &scalable{object: foreign, kind: foreign.GroupVersionKind()},
			&scalable{object: deployment, kind: appsv1.SchemeGroupVersion.WithKind("Deployment")},
			&scalable{object: set, kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet")})
	}
	for round := range 4 {
		var g errgroup.Group
		for _, a := range all {
			replicas := rand.IntN(4)
			if round == 3 {
				replicas = 0
			}
			g.Go(func() error { return a.scale(ctx, c, replicas) })
		}
		check.OK(t, errors.Join(c.KillController(), c.Revive()))
		check.OK(t, g.Wait())
		c.Eventually(t, fmt.Sprintf("the leases are those of the pods in round %d", round), func() error { return c.LeasesAreLiving(ctx) })
	}
	check.OK(t, c.SpeakersAreHolders())
}
