// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/test/check"
)

// clusterOf is a cluster with objects. Its reader may not get objects of the forbidden resource.
func clusterOf(t *testing.T, forbidden string, objects ...client.Object) *cluster.Cluster {
	t.Helper()
	reads := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
		resource := ""
		switch o.(type) {
		case *podview.Pod:
			resource = "pods"
		case *corev1.Node:
			resource = "nodes"
		}
		if resource != "" && resource == forbidden {
			return apierrors.NewForbidden(corev1.Resource(resource), key.Name, errors.New("no rule allows it"))
		}
		return c.Get(ctx, key, o, options...)
	}}
	scheme := check.Value(cache.Scheme())(t)
	return &cluster.Cluster{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(reads).Build()}
}

// The role view has no nodes.
func TestAReaderWithoutARightHearsThatTheEndIsUnknown(t *testing.T) {
	lease := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.7"}, Spec: v1alpha1.IPLeaseSpec{
		Address: "10.0.0.7", State: v1alpha1.StateBound, NodeName: "n1", Holder: &v1alpha1.Holder{Namespace: "shop", Pod: "web-0"},
	}}
	for forbidden, want := range map[string]string{"pods": `pods "web-0" is forbidden`, "nodes": `nodes "n1" is forbidden`} {
		c := clusterOf(t, forbidden)
		e := check.Value(endOf(t.Context(), c, lease))(t)
		said := e.sentence(time.Now())
		check.Says(t, said, "unknown", want)
		check.That(t, !strings.Contains(said, "the controller"), "without %s it says: %s", forbidden, said)
		check.Equal(t, len(c.Unread()), 1, "%s are unread:", forbidden)
	}
}
