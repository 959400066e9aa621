// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/test/check"
)

// A RoleBinding of view lets a person read everything else of a namespace.
func TestAReaderOfANamespaceHearsWhichBindingIsMissing(t *testing.T) {
	resources := func(version, list string) string {
		return fmt.Sprintf(`{"kind":"APIResourceList","groupVersion":%q,"resources":[%s]}`, version, list)
	}
	group := func(name, version string) string {
		return fmt.Sprintf(`{"name":%q,"versions":[{"groupVersion":"%[1]s/%s","version":%[2]q}]}`, name, version)
	}
	discovery := map[string]string{
		"/api":                        `{"kind":"APIVersions","versions":[]}`,
		"/apis":                       `{"kind":"APIGroupList","apiVersion":"v1","groups":[` + group("fenceline.io", "v1alpha1") + "," + group("events.k8s.io", "v1") + `]}`,
		"/apis/fenceline.io/v1alpha1": resources("fenceline.io/v1alpha1", `{"name":"ippools","kind":"IPPool"},{"name":"ipleases","kind":"IPLease"}`),
		"/apis/events.k8s.io/v1":      resources("events.k8s.io/v1", `{"name":"events","kind":"Event","namespaced":true}`),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if answer, ok := discovery[r.URL.Path]; ok {
			fmt.Fprint(w, answer)
			return
		}
		group, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/"), "/")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"forbidden","details":{"group":%q},"code":403}`, group)
	}))
	defer server.Close()
	c := check.Value(cluster.Open(&rest.Config{Host: server.URL}, "fenceline-system"))(t)
	const advice = "a ClusterRoleBinding of view or fenceline-view gives this right"

	lease := &v1alpha1.IPLease{}
	lease.Name = "10.0.0.7"
	check.Says(t, c.List(t.Context(), &v1alpha1.IPPoolList{}), "forbidden", advice)
	check.Says(t, c.Get(t.Context(), client.ObjectKeyFromObject(lease), lease), "forbidden", advice)
	err := c.Delete(t.Context(), lease)
	check.Says(t, err, "forbidden")
	check.That(t, !strings.Contains(fmt.Sprint(err), advice), "view lets nobody delete: %v", err)

	check.OK(t, c.MayList(t.Context(), "pools", &v1alpha1.IPPoolList{}))
	check.OK(t, c.MayList(t.Context(), "events", &eventsv1.EventList{}))
	check.Must(t, len(c.Unread()) == 2, "unread: %v", c.Unread())
	check.Says(t, c.Unread()[0], "pools (", advice)
	check.Equal(t, c.Unread()[1], "events", "a RoleBinding may give the right:")
}
