// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

// onThePage asks the page about a lease as an account that may read everything.
func onThePage(server *controlplane.Server) func(world) {
	return func(w world) {
		w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "viewer"}})
		w.create(&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "viewer"}},
		})
		token := check.Value(server.ServiceAccount(w.ctx, "default", "viewer", nil))(w.T).BearerToken
		w.pool("page", "10.77.0.0/24")
		pod := w.runningPod("page-0", "n1")
		w.bound("page", "10.77.0.2", pod)
		w.waitBound("page", 1) // the page reads from the API server, and may be ahead of the controller
		says := func(words string) {
			w.Helper()
			w.eventually("the page says "+words, func() error {
				request := check.Value(http.NewRequestWithContext(w.ctx, http.MethodGet, "http://"+w.page+"/api/leases/10.77.0.2", nil))(w.T)
				request.Header.Set("Authorization", "Bearer "+token)
				answer, err := http.DefaultClient.Do(request)
				if err != nil {
					return err
				}
				defer answer.Body.Close()
				if text := string(check.Value(io.ReadAll(answer.Body))(w.T)); !strings.Contains(text, words) {
					return errors.New(text)
				}
				return nil
			})
		}
		says("The controller leaves the lease as it is: the pod is alive.")
		w.remove(pod, client.GracePeriodSeconds(0))
		w.waitQuarantined("10.77.0.2", v1alpha1.ReasonPodDeleted)
		says("It was taken from pod default/page-0 on node n1.")
	}
}

// freeAddress returns one of the loopback interface on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l := check.Value((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	check.OK(t, l.Close())
	return l.Addr().String()
}
