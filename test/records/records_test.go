// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

const (
	namespace      = "fenceline-system"
	chart          = "../../charts/fenceline"
	agentUser      = "system:serviceaccount:fenceline-system:fenceline-agent"
	controllerUser = "system:serviceaccount:fenceline-system:fenceline-controller"
	nodeNameKey    = "authentication.kubernetes.io/node-name"
)

// effective is how long the API server may take until it enforces a new policy.
const effective = 2 * time.Minute

// env is an API server on which the chart is installed, and who talks to it.
type env struct {
	server            *controlplane.Server
	scheme            *runtime.Scheme
	admin, controller client.Client
}

func TestRecordsAndPolicies(t *testing.T) {
	e := installed(t)
	t.Run("pools that are accepted", e.testPoolsAccepted)
	t.Run("pools that are refused", e.testPoolsRefused)
	t.Run("addresses that are refused", e.testAddressesRefused)
	t.Run("changes of pools", e.testPoolChanges)
	t.Run("a large pool", e.testLargePool)
	t.Run("nodeDown of pools", e.testNodeDown)
	t.Run("defaults of pools", e.testPoolDefaults)
	t.Run("subnets that are accepted", e.testSubnetsAccepted)
	t.Run("subnets that are refused", e.testSubnetsRefused)
	t.Run("changes of subnets", e.testSubnetChanges)
	t.Run("the status of a subnet", e.testSubnetStatus)
	t.Run("pools of subnets", e.testPoolsOfSubnets)
	t.Run("reservations that are accepted", e.testReservationsAccepted)
	t.Run("reservations that are refused", e.testReservationsRefused)
	t.Run("a reservation of Spiderpool", e.testReservationOfSpiderpool)
	t.Run("the status of a reservation", e.testReservationStatus)
	t.Run("leases that are accepted", e.testLeasesAccepted)
	t.Run("leases that are refused", e.testLeasesRefused)
	t.Run("changes of leases", e.testLeaseChanges)
	t.Run("selectors of leases", e.testLeaseSelectors)
	t.Run("moves", e.testMoves)
	t.Run("the largest move", e.testLargestMove)
	t.Run("holds of a move", e.testHolds)
	t.Run("columns", e.testColumns)
	t.Run("an agent", e.testAgentPolicy)
	t.Run("an agent deletes a pod", e.testAgentPods)
	t.Run("an agent writes a hint", e.testAgentHints)
	t.Run("an agent writes an event", e.testAgentEvents)
	t.Run("an agent asks for the service CIDRs", e.testAgentServices)
	t.Run("a stolen agent token", e.testStolenAgentToken)
	t.Run("the controller patches a pod", e.testControllerPods)
	t.Run("the controller creates a Secret", e.testControllerSecrets)
	t.Run("queues of the API server", e.testQueues)
	t.Run("speakers of virtual addresses", e.testAgentSpeakers)
	t.Run("a person", e.testPeoplePolicy)
	t.Run("a person deletes a CRD:", e.testRecordsPolicy)
	t.Run("rights", e.testRights)
	t.Run("metrics", e.testMetrics)
	t.Run("the page", e.testPage)
	t.Run("stored objects", e.testStoredObjects)
	t.Run("the chart", e.testChart)
}

// installed starts an API server, installs the chart as the README says, and
// returns once every policy is enforced.
func installed(t *testing.T) *env {
	t.Helper()
	server := controlplane.Start(t)
	e := &env{server: server, scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		check.OK(t, add(e.scheme))
	}
	e.admin = e.client(t, server.Admin())
	e.helm(t, "install", "fenceline", chart, "--namespace", namespace, "--create-namespace")
	e.controller = e.as(t, controllerUser, nil)
	e.waitForPolicies(t)
	return e
}

// waitForPolicies tries one write against each policy until all are refused.
func (e *env) waitForPolicies(t *testing.T) {
	t.Helper()
	agent := e.as(t, agentUser, nil)
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "ipleases.fenceline.io"}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "first", Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	e.create(t, pod)
	own := pod.DeepCopy()
	own.Namespace, own.ResourceVersion, own.UID = namespace, "", ""
	e.create(t, own)
	event, reservation := agentEvent("Node", "n1"), record("ReservedIP", "first", fields{"ips": list("10.1.0.9")})
	e.create(t, reservation)
	for policy, try := range map[string]func(context.Context) error{
		"fenceline-people": func(ctx context.Context) error { return e.admin.Create(ctx, bound("", "10.1.0.1"), client.DryRunAll) },
		"fenceline-agents": func(ctx context.Context) error { return agent.Create(ctx, bound("", "10.1.0.1"), client.DryRunAll) },
		"fenceline-agent-hints": func(ctx context.Context) error {
			return agent.Create(ctx, &v1alpha1.LeaseHint{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, client.DryRunAll)
		},
		"fenceline-agent-speakers": func(ctx context.Context) error {
			return agent.Status().Update(ctx, reservation, client.DryRunAll)
		},
		"fenceline-agent-pods": func(ctx context.Context) error { return agent.Delete(ctx, pod, client.DryRunAll) },
		"fenceline-pools": func(ctx context.Context) error {
			return e.controller.Create(ctx, record("IPPool", "first", fields{"subnet": "10.1.0.0/24"}), client.DryRunAll)
		},
		"fenceline-records": func(ctx context.Context) error { return e.admin.Delete(ctx, crd, client.DryRunAll) },
		"fenceline-agent-events": func(ctx context.Context) error {
			return agent.Create(ctx, event.DeepCopy(), client.DryRunAll)
		},
		"fenceline-controller-pods": func(ctx context.Context) error {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
			return e.controller.Patch(ctx, own.DeepCopy(), patch, client.DryRunAll)
		},
		"fenceline-controller-leases": func(ctx context.Context) error {
			return e.controller.Create(ctx, bound("", "10.1.0.1"), client.DryRunAll)
		},
		"fenceline-controller-secrets": func(ctx context.Context) error {
			return e.controller.Create(ctx, secret("first", corev1.SecretTypeOpaque), client.DryRunAll)
		},
	} {
		e.eventually(t, policy, func() error {
			if err := try(t.Context()); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), policy) {
				return fmt.Errorf("it is not enforced: %w", err)
			}
			return nil
		})
	}
}

func (e *env) client(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	return check.Value(client.New(config, client.Options{Scheme: e.scheme}))(t)
}

// as returns the access of an impersonated user.
func (e *env) as(t *testing.T, user string, extra map[string][]string, groups ...string) client.Client {
	t.Helper()
	config := e.server.Admin()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups, Extra: extra}
	return e.client(t, config)
}

// agentAccess is that of the agent of a node, with a token that is bound to its pod. The API server
// looks the pod up by name in a cache, which may still hold an earlier pod of the name.
func (e *env) agentAccess(t *testing.T, node string) *rest.Config {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "agent-" + node + "-", Namespace: namespace},
		Spec: corev1.PodSpec{
			ServiceAccountName: "fenceline-agent", NodeName: node,
			Containers: []corev1.Container{{Name: "agent", Image: "agent"}},
		},
	}
	e.create(t, pod)
	return check.Value(e.server.ServiceAccount(t.Context(), namespace, "fenceline-agent", pod))(t)
}

func (e *env) agent(t *testing.T, node string) client.Client {
	t.Helper()
	return e.client(t, e.agentAccess(t, node))
}

// unboundAgent returns the access of the agents' account by a token of no pod.
func (e *env) unboundAgent(t *testing.T) client.Client {
	t.Helper()
	config := check.Value(e.server.ServiceAccount(t.Context(), namespace, "fenceline-agent", nil))(t)
	return e.client(t, config)
}

// person returns the access of somebody with every right on leases, who may
// delete pods "everywhere", "in-default" or "nowhere".
func (e *env) person(t *testing.T, where string) client.Client {
	t.Helper()
	e.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "leases-" + where},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "fenceline-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: where}},
	})
	deleter := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "pods-" + where}
	e.create(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: deleter.Name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete"}}},
	})
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: where}}
	switch where {
	case "everywhere":
		e.create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: deleter.Name}, RoleRef: deleter, Subjects: subjects})
	case "in-default":
		e.create(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: deleter.Name, Namespace: "default"}, RoleRef: deleter, Subjects: subjects})
	}
	who := e.as(t, where, nil)
	e.mayDelete(t, who, authorizationv1.ResourceAttributes{Group: v1alpha1.GroupName, Resource: "ipleases"})
	switch where {
	case "everywhere":
		e.mayDelete(t, who, authorizationv1.ResourceAttributes{Resource: "pods"})
	case "in-default":
		e.mayDelete(t, who, authorizationv1.ResourceAttributes{Resource: "pods", Namespace: "default"})
	}
	return who
}

// mayDelete waits until the API server's caches have seen a right.
func (e *env) mayDelete(t *testing.T, who client.Client, what authorizationv1.ResourceAttributes) {
	t.Helper()
	what.Verb = "delete"
	e.eventually(t, "the right to delete "+what.Resource, func() error {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}
		if err := who.Create(t.Context(), review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return fmt.Errorf("it is not given: %s", review.Status.Reason)
		}
		return nil
	})
}

// create makes an object as administrator, and removes it when the test has ended.
func (e *env) create(t *testing.T, o client.Object) {
	t.Helper()
	check.OK(t, e.admin.Create(t.Context(), o))
	e.cleanUp(t, o)
}

// cleanUp removes an object when the test has ended, whatever has become of it.
func (e *env) cleanUp(t *testing.T, o client.Object) {
	t.Helper()
	o = o.DeepCopyObject().(client.Object)
	t.Cleanup(func() {
		ctx := context.Background()
		if _, ok := o.(*v1alpha1.IPLease); ok {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null,"annotations":{"fenceline.io/force-delete":"test"}}}`))
			err := e.admin.Patch(ctx, o, patch)
			check.That(t, client.IgnoreNotFound(err) == nil, "%v", err)
		}
		err := e.admin.Delete(ctx, o, client.GracePeriodSeconds(0))
		check.That(t, client.IgnoreNotFound(err) == nil, "%v", err)
	})
}

// expect wants err to be nil where want is empty, otherwise a refusal that says it.
func (e *env) expect(t *testing.T, err error, want string) {
	t.Helper()
	if want != "" {
		e.refused(t, err, want)
	} else if err != nil {
		t.Error(err)
	}
}

// refused wants the API server to have said no, in words.
func (e *env) refused(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Errorf("allowed, want a refusal that says %q", want)
		return
	}
	check.That(t, apierrors.IsInvalid(err) || apierrors.IsForbidden(err), "failed with %v, want a refusal", err)
	check.That(t, strings.Contains(err.Error(), want), "refused with %v, want %q", err, want)
}

// eventually wants try to succeed before the API server's caches are late.
func (e *env) eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	check.OK(t, await.Until(t.Context(), effective, what, func(context.Context) error { return try() }))
}

// objectKey is the key of an object that stands in no namespace.
func objectKey(name string) client.ObjectKey { return client.ObjectKey{Name: name} }
