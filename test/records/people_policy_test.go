// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// testPeoplePolicy: three people have every right on leases. One of them may also
// delete pods everywhere, one in namespace default, one nowhere.
func (e *env) testPeoplePolicy(t *testing.T) {
	lease := func(changes ...func(*v1alpha1.IPLease)) *v1alpha1.IPLease { return bound("", "10.1.0.1", changes...) }
	quarantined := all(in(v1alpha1.StateQuarantined), because(v1alpha1.ReasonPodGone))
	retained := in(v1alpha1.StateRetained)
	label := func(l *v1alpha1.IPLease) { l.Labels = map[string]string{"seen": "yes"} }
	unforced := func(l *v1alpha1.IPLease) { l.Annotations = nil }
	inProd := holderIs("prod", "web-0")

	everywhere, inDefault, nowhere := e.person(t, "everywhere"), e.person(t, "in-default"), e.person(t, "nowhere")
	const (
		unasked   = "annotate the lease with fenceline.io/force-delete first"
		noRight   = "fenceline.io/force-delete requires the right to delete pods in namespace "
		noRights  = "fenceline.io/force-delete requires the right to delete pods in namespaces "
		noRightAt = "fenceline.io/force-delete requires the right to delete pods in all namespaces"
		cascade   = "metadata.ownerReferences"
	)
	for name, c := range map[string]struct {
		who client.Client
		attempt
	}{
		"deletes a Retained lease, with no right on pods":     {nowhere, attempt{remove, lease(retained), nil, ""}},
		"deletes no Bound lease unasked":                      {everywhere, attempt{remove, lease(), nil, unasked}},
		"deletes no Warm lease unasked":                       {everywhere, attempt{remove, lease(in(v1alpha1.StateWarm)), nil, unasked}},
		"deletes no Quarantined lease unasked":                {everywhere, attempt{remove, lease(quarantined), nil, unasked}},
		"deletes a Bound lease by force":                      {inDefault, attempt{remove, lease(forced), nil, ""}},
		"deletes a Quarantined lease by force":                {inDefault, attempt{remove, lease(forced, quarantined), nil, ""}},
		"deletes none by force without the right":             {nowhere, attempt{remove, lease(forced), nil, noRight + "default"}},
		"deletes none by force of another namespace":          {inDefault, attempt{remove, lease(forced, inProd), nil, noRight + "prod"}},
		"deletes one without holder by force":                 {everywhere, attempt{remove, lease(forced, quarantined, withoutHolder), nil, ""}},
		"deletes none without holder, right in one namespace": {inDefault, attempt{remove, lease(forced, quarantined, withoutHolder), nil, noRightAt}},

		"asks for force":                                {inDefault, attempt{update, lease(), forced, ""}},
		"asks for no force without the right":           {nowhere, attempt{update, lease(), forced, noRight + "default"}},
		"asks for none in another namespace":            {inDefault, attempt{update, lease(inProd), forced, noRight + "prod"}},
		"takes force back":                              {nowhere, attempt{update, lease(forced), unforced, ""}},
		"labels a lease":                                {nowhere, attempt{update, lease(), label, ""}},
		"labels a lease that force is asked for":        {nowhere, attempt{update, lease(forced), label, ""}},
		"edits no lease unasked":                        {everywhere, attempt{update, lease(), retained, unasked}},
		"edits not even a Retained one unasked":         {everywhere, attempt{update, lease(retained), in(v1alpha1.StateBound), unasked}},
		"edits a lease by force":                        {inDefault, attempt{update, lease(forced), retained, ""}},
		"edits and asks for force at once":              {inDefault, attempt{update, lease(), all(forced, retained), ""}},
		"edits none and takes force back":               {inDefault, attempt{update, lease(forced), all(unforced, retained), unasked}},
		"edits none without the right":                  {nowhere, attempt{update, lease(forced), retained, noRight + "default"}},
		"moves none into a namespace without the right": {inDefault, attempt{update, lease(forced), inProd, noRights + "default and prod"}},
		"moves none out of one without the right":       {inDefault, attempt{update, lease(forced, inProd), holderIs("default", "web-0"), noRights + "prod and default"}},
		"adds no owner": {everywhere, attempt{update, lease(), func(l *v1alpha1.IPLease) {
			l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "u"}}
		}, cascade}},

		"creates none unasked":                                {everywhere, attempt{create, lease(), nil, "annotate it with fenceline.io/force-delete"}},
		"creates one by force":                                {inDefault, attempt{create, lease(forced), nil, ""}},
		"creates none by force without the right":             {nowhere, attempt{create, lease(forced), nil, noRight + "default"}},
		"creates none without holder, right in one namespace": {inDefault, attempt{create, lease(forced, quarantined, withoutHolder), nil, noRightAt}},

		"the administrator is a person too":                       {e.admin, attempt{remove, lease(), nil, unasked}},
		"the garbage collector clears a finalizer":                {e.as(t, "system:serviceaccount:kube-system:generic-garbage-collector", nil, "system:masters"), attempt{update, lease(finalized), func(l *v1alpha1.IPLease) { l.Finalizers = nil }, ""}},
		"the storage migrator writes back":                        {e.as(t, "system:serviceaccount:kube-system:storage-version-migrator-controller", nil, "system:masters"), attempt{update, lease(), nil, ""}},
		"the controller sets a lease aside":                       {e.controller, attempt{update, lease(), quarantined, ""}},
		"the controller assigns another verifier":                 {e.controller, attempt{update, lease(quarantined), on("n2"), ""}},
		"the controller ends a retention":                         {e.controller, attempt{remove, lease(retained), nil, ""}},
		"the controller creates none, by its rights":              {e.controller, attempt{create, lease(), nil, "cannot create resource"}},
		"a ServiceAccount of the same name elsewhere is a person": {e.as(t, "system:serviceaccount:other:fenceline-controller", nil, "system:masters"), attempt{remove, lease(), nil, unasked}},
	} {
		t.Run(name, func(t *testing.T) { e.try(t, c.who, c.attempt) })
	}

	t.Run("deletes no collection with a Bound lease in it", func(t *testing.T) {
		e.create(t, bound("", "10.1.0.3", forced))
		l := bound("", "10.1.0.3")
		check.OK(t, e.controller.Get(t.Context(), client.ObjectKeyFromObject(l), l))
		l.Annotations = nil
		check.OK(t, e.controller.Update(t.Context(), l))
		e.refused(t, everywhere.DeleteAllOf(t.Context(), &v1alpha1.IPLease{}), unasked)
		check.Is(t, e.controller.Get(t.Context(), client.ObjectKeyFromObject(l), l), nil, "got")
	})
}

// finalized is a lease with a finalizer, as `kubectl delete --cascade=orphan` leaves it for a moment.
func finalized(l *v1alpha1.IPLease) { l.Finalizers = []string{metav1.FinalizerOrphanDependents} }

// testRecordsPolicy: deleting a CRD would delete the leases past every other policy.
func (e *env) testRecordsPolicy(t *testing.T) {
	for _, name := range []string{"ippools.fenceline.io", "ipleases.fenceline.io", "reservedips.fenceline.io", "ipsubnets.fenceline.io"} {
		t.Run(name, func(t *testing.T) {
			crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
			err := e.admin.Delete(t.Context(), crd, client.DryRunAll)
			e.refused(t, err, "deleting "+name+" deletes the record of which pod holds which address")

			check.OK(t, e.admin.Get(t.Context(), client.ObjectKeyFromObject(crd), crd))
			annotated := crd.DeepCopy()
			annotated.Annotations[v1alpha1.AnnotationForceDelete] = "test"
			check.OK(t, e.admin.Update(t.Context(), annotated))
			check.Is(t, e.admin.Delete(t.Context(), annotated, client.DryRunAll), nil, "got")
			delete(annotated.Annotations, v1alpha1.AnnotationForceDelete)
			check.OK(t, e.admin.Update(t.Context(), annotated))
		})
	}
	t.Run("all at once", func(t *testing.T) {
		err := e.admin.DeleteAllOf(t.Context(), &apiextensionsv1.CustomResourceDefinition{}, client.DryRunAll)
		e.refused(t, err, "deletes the record of which pod holds which address")
	})
	t.Run("other CRDs are left alone", func(t *testing.T) {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "others.example.com"}}
		err := e.admin.Delete(t.Context(), crd)
		check.That(t, apierrors.IsNotFound(err), "%v", err)
	})
}
