// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// offeredSince: a live read has found the address in an EndpointSlice since then.
func offeredSince(t time.Time) change {
	return func(f *Facts) { f.Offer = Offer{Slice: "default/web-x", Since: t} }
}

// endpointSlice offers 10.6.0.10 as pod web-0's.
func endpointSlice(changes ...func(*discoveryv1.Endpoint)) *discoveryv1.EndpointSlice {
	e := discoveryv1.Endpoint{
		Addresses:  []string{"10.6.0.10"},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web-0", UID: holderUID},
	}
	for _, c := range changes {
		c(&e)
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-x", Labels: map[string]string{discoveryv1.LabelManagedBy: sliceManager}},
		Endpoints:  []discoveryv1.Endpoint{e},
	}
}

func TestIsOffered(t *testing.T) {
	ready := func(is *bool) func(*discoveryv1.Endpoint) {
		return func(e *discoveryv1.Endpoint) { e.Conditions.Ready = is }
	}
	for _, row := range []struct {
		name string
		when func(*discoveryv1.Endpoint)
		then bool
	}{
		{"a ready endpoint", ready(ptr.To(true)), true},
		{"one that is not", ready(ptr.To(false)), false},
		{"one without the condition ready", ready(nil), true},
		{"one that is terminating and published as ready", func(e *discoveryv1.Endpoint) { e.Conditions.Terminating = ptr.To(true) }, true},
		{"another pod's", func(e *discoveryv1.Endpoint) { e.TargetRef.Name = "web-1" }, false},
		{"one of another kind of object", func(e *discoveryv1.Endpoint) { e.TargetRef.Kind = "Node" }, false},
		{"one without a target", func(e *discoveryv1.Endpoint) { e.TargetRef = nil }, false},
		{"the pod's address on another network", func(e *discoveryv1.Endpoint) { e.Addresses = []string{"10.244.1.7"} }, false},
		{"the pod's by the UID of its mirror pod", func(e *discoveryv1.Endpoint) { e.TargetRef.UID = otherUID }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			offered := endpoint{"web-0", netip.MustParseAddr("10.6.0.10")}
			check.Equal(t, slices.Contains(readyIn(endpointSlice(row.when)), offered), row.then, "offered:")
		})
	}
}

// TestNoAddressIsTakenWhileItIsOffered is the second half of rule R12. The pod
// is gone, and so is its node; EndpointSlices lag behind.
func TestNoAddressIsTakenWhileItIsOffered(t *testing.T) {
	gone := objects(poolObject(), leaseObject(), agentOn("n2"))
	b := between(t, gone, objects(gone, endpointSlice()))
	for range 3 {
		check.Equal(t, check.Value(b.look())(t).RequeueAfter, offerPauseMin, "looks again after")
	}
	b.wantUntouched()
	check.Equal(t, b.lease().Spec.Message, "", "the usual lag is told on the lease:")
	b.clock.Step(offerTold)
	check.Equal(t, check.Value(b.look())(t).RequeueAfter, offerPauseMax, "looks again after")
	b.wantUntouched()
	check.Says(t, b.lease().Spec.Message, "EndpointSlice default/web-x still offers the address")

	told := b.lease()
	withdrawn := between(t, objects(poolObject(), told, agentOn("n2")), objects(poolObject(), told, agentOn("n2"), endpointSlice(func(e *discoveryv1.Endpoint) {
		e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Terminating: ptr.To(true)}
	})))
	withdrawn.lookUntilDue()
	withdrawn.wantTaken(v1alpha1.ReasonNodeGone)
}

func TestOffersOfEachPageCount(t *testing.T) {
	pages := map[string]*discoveryv1.EndpointSliceList{
		"":     {ListMeta: metav1.ListMeta{Continue: "next"}, Items: []discoveryv1.EndpointSlice{*endpointSlice()}},
		"next": {Items: []discoveryv1.EndpointSlice{*endpointSlice(func(e *discoveryv1.Endpoint) { e.TargetRef.Name = "web-1" })}},
	}
	live := interceptor.NewClient(agreed(t).live.(client.WithWatch), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
			asked := (&client.ListOptions{}).ApplyOptions(options)
			pages[asked.Continue].DeepCopyInto(into.(*discoveryv1.EndpointSliceList))
			return nil
		},
	})
	offers := check.Value(offersIn(t.Context(), live, "default"))(t)
	for _, pod := range []string{"web-0", "web-1"} {
		check.Equal(t, offers[endpoint{pod, netip.MustParseAddr("10.6.0.10")}], "default/web-x", "%s is offered by", pod)
	}
}

// TestOnlyKubernetesOwnOffersCount: what others write may stay for ever.
func TestOnlyKubernetesOwnOffersCount(t *testing.T) {
	other := endpointSlice()
	other.Labels[discoveryv1.LabelManagedBy] = "somebody.example.com"
	gone := objects(poolObject(), leaseObject(), agentOn("n2"))
	b := between(t, gone, objects(gone, other))
	b.lookUntilDue()
	b.wantTaken(v1alpha1.ReasonNodeGone)
}

func TestNoAddressIsTakenWhenOffersCannotBeRead(t *testing.T) {
	b := agreed(t, poolObject(), leaseObject(), agentOn("n2"))
	b.reconciler.Reader.Live = interceptor.NewClient(b.live.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "", nil)
		},
	})
	b.reconciler.begin()
	check.Says(t, check.Err(b.look()), "list the EndpointSlices of namespace default")
	b.wantUntouched()
}
