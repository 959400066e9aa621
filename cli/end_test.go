// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

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
		check.Says(t, e.sentence, "unknown", want)
		check.That(t, !strings.Contains(strings.ToLower(e.sentence), "the controller"), "without %s it says: %s", forbidden, e.sentence)
		check.Equal(t, len(c.Unread()), 1, "%s are unread:", forbidden)
	}
}

func TestALeaseToFreeIsFoundOnEachNetwork(t *testing.T) {
	var objects []client.Object
	for _, network := range []string{"", "lab", "storage"} {
		objects = append(objects, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "p" + network},
			Spec: v1alpha1.IPPoolSpec{Network: network, Subnet: "10.2.0.0/24"}})
	}
	for _, name := range []string{"10.2.0.7", "lab.10.2.0.7", "lab.10.2.0.8", "lab.10.2.0.9", "storage.10.2.0.9", "10.9.0.9"} {
		_, addr, err := v1alpha1.ParseLeaseName(name)
		check.OK(t, err)
		objects = append(objects, &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPLeaseSpec{Address: addr.String()}})
	}
	c := clusterOf(t, "", objects...)
	for asked, want := range map[[2]string]string{
		{"10.2.0.7", ""}:          "10.2.0.7",
		{"10.2.0.7", "lab"}:       "lab.10.2.0.7",
		{"lab.10.2.0.7", "*"}:     "lab.10.2.0.7",
		{"10.2.0.8", "*"}:         "lab.10.2.0.8",
		{"10.9.0.9", "*"}:         "10.9.0.9", // no pool has it any more
		{"storage.10.2.0.9", "*"}: "storage.10.2.0.9",
	} {
		q, err := parseQuery(asked[0], asked[1])
		check.OK(t, err)
		lease, err := leaseOf(t.Context(), c, q)
		if err != nil {
			t.Errorf("%s: %v", asked, err)
			continue
		}
		check.Equal(t, lease.Name, want, "the lease of %s:", asked)
	}
	for asked, want := range map[[2]string]string{
		{"10.2.0.7", "*"}:           `10.2.0.7 has leases on several networks: choose one of ["" "lab"] with --network`,
		{"10.2.0.9", "*"}:           `10.2.0.9 has leases on several networks: choose one of ["lab" "storage"] with --network`,
		{"10.2.0.6", "*"}:           "10.2.0.6 has no lease",
		{"10.2.0.8", ""}:            "10.2.0.8 has no lease",
		{"storage.10.2.0.8", "*"}:   "10.2.0.8 on network storage has no lease",
		{"storage.10.2.0.8", "lab"}: `storage.10.2.0.8 is on network storage, and not on "lab"`,
		{"::ffff:10.2.0.8", ""}:     "10.2.0.8 has no lease",
		{"fe80::7%eth0", ""}:        `"fe80::7%eth0" has a zone`,
		{"10.2.0", "*"}:             `"10.2.0" is neither an address nor the name of a lease`,
	} {
		q, err := parseQuery(asked[0], asked[1])
		if err == nil {
			_, err = leaseOf(t.Context(), c, q)
		}
		check.Says(t, err, want)
	}
}

func TestTheQuestionOfFreeNamesTheNetwork(t *testing.T) {
	for network, want := range map[string]string{"": "the lease of fd00::7 (", "lab": "the lease of fd00::7 on network lab ("} {
		var out bytes.Buffer
		s := &session{}
		s.In, s.Out = strings.NewReader("y\n"), &out
		name := v1alpha1.LeaseName(network, netip.MustParseAddr("fd00::7"))
		check.OK(t, s.confirm(&v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPLeaseSpec{Address: "fd00::7"}}))
		check.Says(t, out.String(), want)
	}
}
