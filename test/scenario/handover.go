// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/cluster"
)

// controllers is the controllers' Deployment without its contents. Their leader's Lease has the same name.
func controllers() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.FencelineNamespace, Name: "fenceline-controller"}}
}

func (a *act) controllersAreOut(ctx context.Context) {
	eventually(ctx, rollLimit, "the controllers to be rolled out", func(ctx context.Context) {
		a.rolledOut(ctx, client.ObjectKeyFromObject(controllers()))
	})
}

// addController runs two controllers until the end of the scenario.
func (a *act) addController(ctx context.Context) {
	a.after("run one controller", func(ctx context.Context) { a.runControllers(ctx, 1) })
	a.runControllers(ctx, 2)
}

func (a *act) runControllers(ctx context.Context, count int) {
	a.patch(ctx, controllers(), `{"spec":{"replicas":%d}}`, count)
	a.controllersAreOut(ctx)
}

// leader returns the name of the leading controller.
func (a *act) leader(ctx context.Context) string {
	lease := &coordinationv1.Lease{}
	check(a.api.Get(ctx, client.ObjectKeyFromObject(controllers()), lease))
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}
