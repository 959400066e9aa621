// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/cluster"
)

// controllers is the name of the controllers' Deployment and of their leader's Lease.
func controllers() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: cluster.FencelineNamespace, Name: "fenceline-controller"}
}

// patchControllers changes the Deployment.
func (a *act) patchControllers(ctx context.Context, patch string) error {
	return a.api.Patch(ctx, &appsv1.Deployment{ObjectMeta: controllers()}, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

func (a *act) controllersAreOut(ctx context.Context) error {
	return eventually(ctx, rollLimit, "the controllers to be rolled out", func(ctx context.Context) error {
		return a.rolledOut(ctx, client.ObjectKey{Namespace: controllers().Namespace, Name: controllers().Name})
	})
}

// addController runs two controllers until the end of the scenario.
func (a *act) addController(ctx context.Context) {
	a.after("run one controller", func(ctx context.Context) error {
		check(a.patchControllers(ctx, `{"spec":{"replicas":1}}`))
		return a.controllersAreOut(ctx)
	})
	check(a.patchControllers(ctx, `{"spec":{"replicas":2}}`))
	check(a.controllersAreOut(ctx))
}

// replaceControllers begins to replace both controllers. The step that it returns judges that they are
// replaced, and that one of the new ones leads.
func (a *act) replaceControllers(ctx context.Context) (isDone func(context.Context) error) {
	before := value(a.leader(ctx))
	check(a.patchControllers(ctx, `{"spec":{"template":{"metadata":{"annotations":{"roll":"1"}}}}}`))
	return func(ctx context.Context) error {
		check(a.controllersAreOut(ctx))
		if now := value(a.leader(ctx)); now == "" || now == before {
			return fmt.Errorf("%q led before its controller was replaced, and %q leads now", before, now)
		}
		return nil
	}
}

// leader returns who leads the controllers.
func (a *act) leader(ctx context.Context) (string, error) {
	lease := &coordinationv1.Lease{ObjectMeta: controllers()}
	err := a.api.Get(ctx, client.ObjectKeyFromObject(lease), lease)
	return ptr.Deref(lease.Spec.HolderIdentity, ""), err
}
