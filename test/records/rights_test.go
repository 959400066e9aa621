// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/test/check"
)

// testRights asks RBAC for what each account needs, and for what none may have.
func (e *env) testRights(t *testing.T) {
	type right struct {
		user, verb, group, resource, namespace, name string
		allowed                                      bool
	}
	const ours = "fenceline.io"
	const viewer, keeper = "viewer", "keeper"
	for user, role := range map[string]string{viewer: "fenceline-view", keeper: "fenceline-admin"} {
		e.create(t, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		})
	}
	for _, r := range []right{
		{agentUser, "get", ours, "reservedips", "", "", true},
		{agentUser, "list", ours, "reservedips", "", "", true},
		{agentUser, "watch", ours, "reservedips", "", "", true},
		{agentUser, "update", ours, "reservedips", "", "", false},
		{agentUser, "update", ours, "reservedips/status", "", "", false},
		{agentUser, "delete", ours, "reservedips", "", "", false},
		{controllerUser, "watch", ours, "reservedips", "", "", true},
		{controllerUser, "update", ours, "reservedips/status", "", "", true},
		{controllerUser, "create", ours, "reservedips", "", "", false},
		{controllerUser, "update", ours, "reservedips", "", "", false},
		{controllerUser, "delete", ours, "reservedips", "", "", false},
		{viewer, "watch", ours, "reservedips", "", "", true},
		{viewer, "list", ours, "ippools", "", "", true},
		{viewer, "create", ours, "reservedips", "", "", false},
		{viewer, "delete", ours, "reservedips", "", "", false},
		{keeper, "create", ours, "reservedips", "", "", true},
		{keeper, "patch", ours, "reservedips", "", "", true},
		{keeper, "deletecollection", ours, "reservedips", "", "", true},
		{keeper, "update", ours, "reservedips/status", "", "", false},

		{agentUser, "watch", ours, "ipsubnets", "", "", true},
		{agentUser, "update", ours, "ipsubnets", "", "", false},
		{agentUser, "update", ours, "ipsubnets/status", "", "", false},
		{agentUser, "get", "apps", "replicasets", "default", "web-1", true},
		{agentUser, "get", "batch", "jobs", "default", "run", true},
		{agentUser, "list", "apps", "replicasets", "", "", false},
		{agentUser, "list", "batch", "jobs", "", "", false},
		{agentUser, "create", ours, "ippools", "", "", false},
		{controllerUser, "watch", ours, "ipsubnets", "", "", true},
		{controllerUser, "update", ours, "ipsubnets/status", "", "", true},
		{controllerUser, "update", ours, "ipsubnets", "", "", false},
		{controllerUser, "delete", ours, "ipsubnets", "", "", false},
		{controllerUser, "create", ours, "ippools", "", "", true},
		{controllerUser, "delete", ours, "ippools", "", "", true},
		{controllerUser, "watch", "apps", "deployments", "", "", true},
		{controllerUser, "watch", "apps", "daemonsets", "", "", true},
		{controllerUser, "watch", "batch", "jobs", "", "", true},
		{controllerUser, "watch", "batch", "cronjobs", "", "", true},
		{controllerUser, "get", "apps", "replicasets", "default", "web-1", true},
		{controllerUser, "watch", "", "namespaces", "", "", true},
		{controllerUser, "get", "example.com", "things/scale", "default", "web", true},
		{controllerUser, "update", "apps", "deployments/scale", "default", "web", false},
		{controllerUser, "update", "apps", "deployments", "default", "web", false},
		{viewer, "watch", ours, "ipsubnets", "", "", true},
		{viewer, "create", ours, "ipsubnets", "", "", false},
		{keeper, "create", ours, "ipsubnets", "", "", true},
		{keeper, "delete", ours, "ipsubnets", "", "", true},
		{keeper, "update", ours, "ipsubnets/status", "", "", false},

		{agentUser, "watch", ours, "ippools", "", "", true},
		{agentUser, "create", ours, "ipleases", "", "", true},
		{agentUser, "get", "", "secrets", namespace, "fenceline-claim-key", true},
		{agentUser, "watch", "", "secrets", namespace, "fenceline-claim-key", true},
		{agentUser, "list", "", "namespaces", "", "", true},
		{agentUser, "get", "", "nodes", "", "n1", true},
		{agentUser, "list", "networking.k8s.io", "servicecidrs", "", "", true},
		{agentUser, "watch", "networking.k8s.io", "servicecidrs", "", "", true},
		{agentUser, "create", "networking.k8s.io", "servicecidrs", "", "", false},
		{agentUser, "list", "networking.k8s.io", "servicecidrs", "", "", true},
		{agentUser, "watch", "networking.k8s.io", "servicecidrs", "", "", true},
		{agentUser, "update", "networking.k8s.io", "servicecidrs", "", "", false},
		{agentUser, "create", "events.k8s.io", "events", "default", "", true},
		{agentUser, "delete", "", "pods", "default", "p", true},

		{agentUser, "update", ours, "ippools", "", "", false},
		{agentUser, "update", ours, "ippools/status", "", "", false},
		{agentUser, "patch", ours, "ipleases", "", "", false},
		{agentUser, "deletecollection", ours, "ipleases", "", "", false},
		{agentUser, "get", "", "secrets", namespace, "other", false},
		{agentUser, "list", "", "secrets", namespace, "", false},
		{agentUser, "get", "", "secrets", "kube-system", "fenceline-claim-key", false},
		{agentUser, "update", "", "secrets", namespace, "fenceline-claim-key", false},
		{agentUser, "create", "", "pods", "default", "", false},
		{agentUser, "patch", "", "pods", namespace, "", false},
		{agentUser, "create", "", "serviceaccounts/token", namespace, "fenceline-agent", false},
		{agentUser, "impersonate", "", "users", "", "", false},

		{controllerUser, "get", "apps.kruise.io", "statefulsets/scale", "default", "web", true},
		{controllerUser, "get", "apps.kruise.io", "statefulsets", "default", "web", true},
		{controllerUser, "update", "apps.kruise.io", "statefulsets/scale", "default", "web", false},
		{controllerUser, "get", "kubevirt.io", "virtualmachines", "default", "db", true},
		{controllerUser, "get", "kubevirt.io", "virtualmachineinstances", "default", "db", true},
		{controllerUser, "update", "kubevirt.io", "virtualmachines", "default", "db", false},
		{agentUser, "get", "kubevirt.io", "virtualmachines", "default", "db", false},

		{controllerUser, "update", ours, "ippools", "", "", true},
		{controllerUser, "update", ours, "ippools/status", "", "", true},
		{controllerUser, "update", ours, "ipleases", "", "", true},
		{controllerUser, "delete", ours, "ipleases", "", "", true},
		{controllerUser, "delete", "", "pods", "default", "p", true},
		{controllerUser, "watch", "apps", "statefulsets", "", "", true},
		{controllerUser, "list", "discovery.k8s.io", "endpointslices", "default", "", true},
		{controllerUser, "create", "", "secrets", namespace, "", true},
		{controllerUser, "patch", "", "pods", namespace, "", true},
		{controllerUser, "create", "coordination.k8s.io", "leases", namespace, "", true},
		{controllerUser, "update", "coordination.k8s.io", "leases", namespace, "fenceline-controller", true},
		{controllerUser, "create", "events.k8s.io", "events", "default", "", true},

		{controllerUser, "create", ours, "ipleases", "", "", false},
		{controllerUser, "get", "", "secrets", namespace, "fenceline-claim-key", false},
		{controllerUser, "update", "", "secrets", namespace, "fenceline-claim-key", false},
		{controllerUser, "delete", "", "secrets", namespace, "other", false},
		{controllerUser, "create", "", "secrets", "default", "", false},
		{controllerUser, "patch", "", "pods", "default", "", false},
		{controllerUser, "update", "coordination.k8s.io", "leases", namespace, "other", false},
		{controllerUser, "update", "", "nodes", "", "n1", false},
		{controllerUser, "update", "discovery.k8s.io", "endpointslices", "default", "", false},
		// Only while the chart is being uninstalled.
		{controllerUser, "delete", "apps", "daemonsets", namespace, "fenceline-agent", false},
		{controllerUser, "delete", "apps", "deployments", namespace, "fenceline-controller", false},
	} {
		resource, subresource, _ := strings.Cut(r.resource, "/")
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: r.user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: r.verb, Group: r.group, Resource: resource, Subresource: subresource, Namespace: r.namespace, Name: r.name,
			},
		}}
		check.OK(t, e.admin.Create(t.Context(), review))
		if review.Status.Allowed != r.allowed {
			t.Errorf("%+v: RBAC says %t", r, review.Status.Allowed)
		}
	}
}
