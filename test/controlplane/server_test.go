// SPDX-License-Identifier: Apache-2.0

//go:build api

package controlplane_test

import (
	"context"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

func TestATokenBoundToAPodCarriesTheNameOfItsNode(t *testing.T) {
	ctx := context.Background()
	server := controlplane.New(t)
	admin := kubernetes.NewForConfigOrDie(server.Admin())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "speaker"}}
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod, err := admin.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "speaker"},
		Spec: corev1.PodSpec{
			ServiceAccountName: "speaker", NodeName: "n1",
			Containers: []corev1.Container{{Name: "c", Image: "none"}},
		},
	}, metav1.CreateOptions{})
	check.OK(t, err)
	const node = "authentication.kubernetes.io/node-name"
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		want string
	}{{"bound", pod, "n1"}, {"not bound", nil, ""}} {
		config := check.Value(server.ServiceAccount(ctx, "default", "speaker", tc.pod))(t)
		review, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().
			Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		check.OK(t, err)
		check.Equal(t, strings.Join(review.Status.UserInfo.Extra[node], ""), tc.want, "%s: node name", tc.name)
	}
}

func TestAStoppedServerKeepsItsData(t *testing.T) {
	ctx := context.Background()
	server := controlplane.New(t)
	admin := kubernetes.NewForConfigOrDie(server.Admin())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	_, err := admin.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	check.Must(t, err == nil, "%v", err)
	check.OK(t, server.StopAPIServer(ctx))
	if _, err := admin.CoreV1().Namespaces().Get(ctx, "kept", metav1.GetOptions{}); err == nil {
		t.Fatal("a stopped server answers")
	}
	check.OK(t, server.StartAPIServer(ctx))
	if _, err := admin.CoreV1().Namespaces().Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
}
