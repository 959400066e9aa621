// SPDX-License-Identifier: Apache-2.0

//go:build api

package owner_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/owners"
)

func askerOf(t *testing.T, config *rest.Config) (owner.Asker, client.Client) {
	t.Helper()
	c := check.Value(client.NewWithWatch(config, client.Options{}))(t)
	return owner.Asker{Live: c, Scales: c, Mapper: c.RESTMapper(), Watches: c}, c
}

// The owners of other projects are asked by objects of their shape, on a real API server.
func TestOwnersOfOtherProjects(t *testing.T) {
	server := controlplane.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	asker, c := askerOf(t, server.Admin())
	set := &v1alpha1.Holder{Namespace: "default", Pod: "web-2", OwnerGroup: "apps.kruise.io", OwnerKind: "StatefulSet", OwnerName: "web"}
	machine := &v1alpha1.Holder{Namespace: "default", Pod: "virt-launcher-db-x7", OwnerGroup: "kubevirt.io", OwnerKind: "VirtualMachineInstance", OwnerName: "db"}
	want := func(asker owner.Asker, h *v1alpha1.Holder, standing owner.Standing, lack owner.Lack) {
		t.Helper()
		v, err := asker.Look(ctx, h)
		if need := v.Need(h.Pod); err != nil || need.Standing != standing || v.Lack != lack {
			t.Fatalf("%+v (lack %q), %v, want %v (lack %q)", need, v.Lack, err, standing, lack)
		}
	}
	change := func(o *unstructured.Unstructured, value any, fields ...string) {
		t.Helper()
		check.OK(t, unstructured.SetNestedField(o.Object, value, fields...))
		check.OK(t, c.Update(ctx, o))
	}

	want(asker, set, owner.Unknown, owner.LackAPI)
	want(asker, machine, owner.Unknown, owner.LackAPI)
	check.OK(t, owners.Install(ctx, server.Admin(), append(owners.Machines(), owners.StatefulSets())...))

	// OpenKruise: the scale, the start and the reserved ordinals.
	want(asker, set, owner.Gone, "")
	web := owners.StatefulSet("default", "web", 2)
	check.OK(t, c.Create(ctx, web))
	want(asker, set, owner.Unwanted, "")
	change(web, int64(3), "spec", "replicas")
	want(asker, set, owner.Wanted, "")
	change(web, []any{int64(2)}, "spec", "reserveOrdinals")
	want(asker, set, owner.Unwanted, "")
	change(web, []any{"0-1"}, "spec", "reserveOrdinals")
	change(web, int64(1), "spec", "replicas")
	want(asker, set, owner.Wanted, "")
	change(web, []any{"none"}, "spec", "reserveOrdinals")
	want(asker, set, owner.Unknown, owner.LackSense)
	unstructured.RemoveNestedField(web.Object, "spec", "reserveOrdinals")
	change(web, int64(2), "spec", "ordinals", "start")
	want(asker, set, owner.Wanted, "")
	older := &unstructured.Unstructured{}
	older.SetAPIVersion("apps.kruise.io/v1alpha1")
	older.SetKind("StatefulSet")
	check.OK(t, c.Get(ctx, client.ObjectKeyFromObject(web), older))
	replicas, err := asker.Replicas(ctx, owner.Ref{Group: "apps.kruise.io", Kind: "StatefulSet", Namespace: "default", Name: "web", UID: web.GetUID()})
	check.That(t, err == nil && replicas == 1, "%d replicas, %v", replicas, err)
	_, err = asker.Replicas(ctx, owner.Ref{Group: "apps.kruise.io", Kind: "StatefulSet", Namespace: "default", Name: "web", UID: "other"})
	check.That(t, errors.Is(err, owner.ErrGone), "another object of the name: %v", err)

	// KubeVirt: the machine and its instance.
	want(asker, machine, owner.Gone, "")
	instance := owners.Instance("default", "db")
	check.OK(t, c.Create(ctx, instance))
	want(asker, machine, owner.Wanted, "") // an instance without a machine
	follows(ctx, t, asker, c, machine, instance)
	db := owners.Machine("default", "db", "Halted")
	check.OK(t, c.Create(ctx, db))
	want(asker, machine, owner.Wanted, "") // it is being stopped
	check.OK(t, c.Delete(ctx, instance))
	want(asker, machine, owner.Stopped, "")
	change(db, "Always", "spec", "runStrategy")
	want(asker, machine, owner.Wanted, "")
	unstructured.RemoveNestedField(db.Object, "spec", "runStrategy")
	change(db, false, "spec", "running")
	want(asker, machine, owner.Stopped, "")

	// The rights are missing, then one of them.
	check.OK(t, c.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stranger"}}))
	config, err := server.ServiceAccount(ctx, "default", "stranger", nil)
	check.OK(t, err)
	stranger, _ := askerOf(t, config)
	want(stranger, set, owner.Unknown, owner.LackRight)
	want(stranger, machine, owner.Unknown, owner.LackRight)
	err = stranger.FollowMigration(ctx, machine, time.Minute, func() {})
	check.That(t, errors.Is(err, owner.ErrNoRight), "a watch without the right: %v", err)
	grant(ctx, t, c, rbacv1.PolicyRule{APIGroups: []string{"apps.kruise.io"}, Resources: []string{"statefulsets"}, Verbs: []string{"get"}})
	for { // RBAC reads its objects from a cache
		v, err := stranger.Look(ctx, set)
		if err == nil && v.Lack == owner.LackRight && ctx.Err() == nil {
			if _, err := stranger.Get(ctx, v.Ref); err == nil {
				break // what lacks now is the right to read the scale
			}
		}
		check.OK(t, ctx.Err())
	}

	// A kind without the subresource, and an API server that is away: that passes, so it is an error.
	_, err = asker.Replicas(ctx, owner.Ref{Group: "kubevirt.io", Kind: "VirtualMachine", Namespace: "default", Name: "db"})
	check.That(t, errors.Is(err, owner.ErrNoScale) || errors.Is(err, owner.ErrGone), "the scale of a virtual machine: %v", err)
	check.OK(t, server.StopAPIServer(ctx))
	v, err := asker.Look(ctx, machine)
	check.That(t, err != nil, "the API server is away, and the owner is %+v", v)
}

// follows judges that changes of the instance of a machine are heard, and those of another are not.
func follows(ctx context.Context, t *testing.T, asker owner.Asker, c client.Client, machine *v1alpha1.Holder, instance *unstructured.Unstructured) {
	t.Helper()
	heard, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- asker.FollowMigration(ctx, machine, 5*time.Second, func() { heard <- struct{}{} })
	}()
	<-heard // the state at the start
	check.OK(t, c.Create(ctx, owners.Instance("default", "other")))
	check.OK(t, unstructured.SetNestedField(instance.Object, "PreCopy", "status", "migrationState", "mode"))
	check.OK(t, c.Update(ctx, instance))
	<-heard
	select {
	case err := <-ended:
		check.OK(t, err)
	case <-heard:
		t.Fatal("the change of another instance is heard")
	case <-ctx.Done():
		t.Fatal("the watch lasts on")
	}
}

func grant(ctx context.Context, t *testing.T, c client.Client, rule rbacv1.PolicyRule) {
	t.Helper()
	check.OK(t, c.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}, Rules: []rbacv1.PolicyRule{rule}}))
	check.OK(t, c.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "stranger"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "stranger"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: corev1.NamespaceDefault, Name: "stranger"}},
	}))
}
