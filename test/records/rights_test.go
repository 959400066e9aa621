// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/check"
)

// testRights asks RBAC for what each account needs, and for what none may have.
func (e *env) testRights(t *testing.T) {
	type right struct {
		user, verbs, group, resource, namespace, name string
		allowed                                       bool
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
		{agentUser, "get list watch", ours, "reservedips", "", "", true},
		{agentUser, "update delete", ours, "reservedips", "", "", false},
		{agentUser, "update", ours, "reservedips/status", "", "", true},
		{agentUser, "patch delete", ours, "reservedips/status", "", "", false},
		{controllerUser, "watch", ours, "reservedips", "", "", true},
		{controllerUser, "update", ours, "reservedips/status", "", "", true},
		{controllerUser, "create update delete", ours, "reservedips", "", "", false},
		{viewer, "watch", ours, "reservedips", "", "", true},
		{viewer, "list", ours, "ippools", "", "", true},
		{viewer, "create delete", ours, "reservedips", "", "", false},
		{keeper, "create patch deletecollection", ours, "reservedips", "", "", true},
		{keeper, "update", ours, "reservedips/status", "", "", false},

		{agentUser, "watch", ours, "ipsubnets", "", "", true},
		{agentUser, "update", ours, "ipsubnets", "", "", false},
		{agentUser, "update", ours, "ipsubnets/status", "", "", false},
		{agentUser, "get", "apps", "replicasets", "default", "web-1", true},
		{agentUser, "get", "batch", "jobs", "default", "run", true},
		{agentUser, "list", "apps", "replicasets", "", "", false},
		{agentUser, "list", "batch", "jobs", "", "", false},
		{agentUser, "create update", ours, "ippools", "", "", false},
		{controllerUser, "watch", ours, "ipsubnets", "", "", true},
		{controllerUser, "update", ours, "ipsubnets/status", "", "", true},
		{controllerUser, "update delete", ours, "ipsubnets", "", "", false},
		{controllerUser, "create delete update", ours, "ippools", "", "", true},
		{controllerUser, "list watch", "", "services", "", "", true},
		{controllerUser, "create update delete", "", "services", "", "", false},
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
		{keeper, "create delete", ours, "ipsubnets", "", "", true},
		{keeper, "update", ours, "ipsubnets/status", "", "", false},

		{agentUser, "get list watch create update", ours, "leasehints", "", "", true},
		{agentUser, "patch delete deletecollection", ours, "leasehints", "", "", false},
		{agentUser, "update patch", ours, "leasehints/status", "", "", false},
		{controllerUser, "get list watch", ours, "leasehints", "", "", true},
		{controllerUser, "patch", ours, "leasehints/status", "", "", true},
		{controllerUser, "create update delete", ours, "leasehints", "", "", false},
		{viewer, "watch", ours, "leasehints", "", "", true},
		{viewer, "create update delete", ours, "leasehints", "", "", false},
		{keeper, "create update delete", ours, "leasehints", "", "", false},

		{agentUser, "get", ours, "moves", "", "", true},
		{agentUser, "list watch create update", ours, "moves", "", "", false},
		{controllerUser, "get list watch", ours, "moves", "", "", true},
		{controllerUser, "update", ours, "moves/status", "", "", true},
		{controllerUser, "create update delete", ours, "moves", "", "", false},
		{controllerUser, "get", "k8s.cni.cncf.io", "network-attachment-definitions", "default", "vlan100", true},
		{controllerUser, "list", "whereabouts.cni.cncf.io", "ippools", "kube-system", "", true},
		{controllerUser, "watch update", "whereabouts.cni.cncf.io", "ippools", "kube-system", "", false},
		{controllerUser, "list update", "k8s.cni.cncf.io", "network-attachment-definitions", "default", "", false},
		{controllerUser, "get", "spiderpool.spidernet.io", "spiderreservedips", "", "fenceline-shop.vlan100-v4", true},
		{controllerUser, "update", "spiderpool.spidernet.io", "spiderreservedips", "", "", false},
		{viewer, "watch", ours, "moves", "", "", true},
		{viewer, "create update delete", ours, "moves", "", "", false},
		{keeper, "create update patch delete", ours, "moves", "", "", true},
		{keeper, "update", ours, "moves/status", "", "", false},

		{agentUser, "watch", ours, "ippools", "", "", true},
		{agentUser, "create", ours, "ipleases", "", "", true},
		{agentUser, "get watch", "", "secrets", namespace, "fenceline-claim-key", true},
		{agentUser, "list", "", "namespaces", "", "", true},
		{agentUser, "get", "", "nodes", "", "n1", true},
		{agentUser, "list watch", "networking.k8s.io", "servicecidrs", "", "", true},
		{agentUser, "list watch", "", "services", "", "", true},
		{agentUser, "update delete", "", "services", "", "", false},
		{agentUser, "list", "", "nodes", "", "", true},
		{agentUser, "list", "crd.projectcalico.org", "ippools", "", "", true},
		{agentUser, "update", "crd.projectcalico.org", "ippools", "", "", false},
		{agentUser, "get", "", "configmaps", "kube-system", "cilium-config", true},
		{agentUser, "get", "", "configmaps", "kube-system", "other", false},
		{agentUser, "list", "", "configmaps", "kube-system", "", false},
		{agentUser, "create update", "networking.k8s.io", "servicecidrs", "", "", false},
		{agentUser, "create", "events.k8s.io", "events", "default", "", true},
		{agentUser, "delete", "", "pods", "default", "p", true},

		{agentUser, "update", ours, "ippools/status", "", "", false},
		{agentUser, "watch patch deletecollection", ours, "ipleases", "", "", false},
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
		{controllerUser, "get watch", "kubevirt.io", "virtualmachineinstances", "default", "db", true},
		{controllerUser, "list", "kubevirt.io", "virtualmachineinstances", "", "", false},
		{controllerUser, "update", "kubevirt.io", "virtualmachines", "default", "db", false},
		{agentUser, "get", "kubevirt.io", "virtualmachines", "default", "db", false},

		{controllerUser, "update", ours, "ippools/status", "", "", true},
		{controllerUser, "create update delete", ours, "ipleases", "", "", true},
		{controllerUser, "delete", "", "pods", "default", "p", true},
		{controllerUser, "watch", "apps", "statefulsets", "", "", true},
		{controllerUser, "list", "discovery.k8s.io", "endpointslices", "default", "", true},
		{controllerUser, "create", "", "secrets", namespace, "", true},
		{controllerUser, "patch", "", "pods", namespace, "", true},
		{controllerUser, "create", "coordination.k8s.io", "leases", namespace, "", true},
		{controllerUser, "update", "coordination.k8s.io", "leases", namespace, "fenceline-controller", true},
		{controllerUser, "create", "events.k8s.io", "events", "default", "", true},

		{controllerUser, "get update", "", "secrets", namespace, "fenceline-claim-key", false},
		{controllerUser, "delete", "", "secrets", namespace, "other", false},
		{controllerUser, "create", "", "secrets", "default", "", false},
		{controllerUser, "patch", "", "pods", "default", "", false},
		{controllerUser, "update", "coordination.k8s.io", "leases", namespace, "other", false},
		{controllerUser, "update patch", "", "nodes", "", "n1", false},
		{controllerUser, "update", "discovery.k8s.io", "endpointslices", "default", "", false},
		// Only while the chart is being uninstalled.
		{controllerUser, "delete", "apps", "daemonsets", namespace, "fenceline-agent", false},
		{controllerUser, "delete", "apps", "deployments", namespace, "fenceline-controller", false},
	} {
		resource, subresource, _ := strings.Cut(r.resource, "/")
		for _, verb := range strings.Fields(r.verbs) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: r.user,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: verb, Group: r.group, Resource: resource, Subresource: subresource, Namespace: r.namespace, Name: r.name,
				},
			}}
			say := func() bool {
				again := review.DeepCopy()
				check.OK(t, e.admin.Create(t.Context(), again))
				return again.Status.Allowed
			}
			if r.allowed { // RBAC takes a moment
				check.Becomes(t, effective, fmt.Sprintf("%s, %+v", verb, r), say)
				continue
			}
			check.That(t, !say(), "%s, %+v: RBAC allows it", verb, r)
		}
	}
}

// lastLevel records the priority level of the last answer of the API server.
type lastLevel struct {
	next http.RoundTripper
	mu   sync.Mutex
	uid  string
}

func (l *lastLevel) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.next.RoundTrip(r)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.uid = answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)
	}
	return answer, err
}

// watchedAgent returns a client with the token of the agents' account, and the priority level of its calls.
func (e *env) watchedAgent(t *testing.T) (client.Client, *lastLevel) {
	t.Helper()
	config := e.agentAccess(t, "n1")
	seen := &lastLevel{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		seen.next = next
		return seen
	})
	return e.client(t, config), seen
}

// testQueues: the events of agents do not wait where their leases do.
func (e *env) testQueues(t *testing.T) {
	names := map[string]string{}
	var levels flowcontrolv1.PriorityLevelConfigurationList
	check.OK(t, e.admin.List(t.Context(), &levels))
	for _, l := range levels.Items {
		names[string(l.UID)] = l.Name
	}
	agent, seen := e.watchedAgent(t)
	for _, row := range []struct {
		what, level string
		write       func() error
	}{
		{"a lease", "fenceline", func() error { return agent.Create(t.Context(), bound("", "10.1.0.1"), client.DryRunAll) }},
		{"an event", "fenceline-events", func() error { return agent.Create(t.Context(), agentEvent("Pod", "web-0"), client.DryRunAll) }},
	} {
		e.eventually(t, "the queue of "+row.what, func() error {
			if err := row.write(); err != nil {
				return err
			}
			seen.mu.Lock()
			defer seen.mu.Unlock()
			if got := names[seen.uid]; got != row.level {
				return fmt.Errorf("it is %q, want %q", got, row.level)
			}
			return nil
		})
	}
}
