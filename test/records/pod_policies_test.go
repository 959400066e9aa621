// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/hostlink/servicecidr"
	"github.com/fenceline/fenceline/agent/watch"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

// agentEvent is an event as an agent creates it.
func agentEvent(kind, name string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{GenerateName: "agent-", Namespace: "default"},
		EventTime:           metav1.NewMicroTime(time.Now()),
		ReportingController: "fenceline-agent", ReportingInstance: "fenceline-agent-n1",
		Reason: "Installed", Action: "Install", Type: corev1.EventTypeWarning,
		Regarding: corev1.ObjectReference{Kind: kind, Name: name, Namespace: "default"},
	}
}

// testAgentEvents: an agent writes events in its own name, and only about its own Node.
func (e *env) testAgentEvents(t *testing.T) {
	as := func(controller string) func(*eventsv1.Event) {
		return func(ev *eventsv1.Event) { ev.ReportingController = controller }
	}
	unchanged := func(*eventsv1.Event) {}
	agent := e.agent(t, "n1")
	for name, c := range map[string]struct {
		who      client.Client
		kind, of string
		change   func(*eventsv1.Event)
		want     string
	}{
		"about its own Node":       {agent, "Node", "n1", unchanged, ""},
		"about a pod":              {agent, "Pod", "web-0", unchanged, ""},
		"about a lease":            {agent, "IPLease", "10.1.0.1", unchanged, ""},
		"about another Node":       {agent, "Node", "n2", unchanged, "may not write an event about Node n2"},
		"about a Deployment":       {agent, "Deployment", "web", unchanged, "may not write an event about Deployment web"},
		"in another's name":        {agent, "Pod", "web-0", as("kubelet"), "may not write an event of kubelet"},
		"with a token of no node":  {e.unboundAgent(t), "Pod", "web-0", unchanged, "the agent of node (none)"},
		"as the controller's user": {e.controller, "Pod", "web-0", as("fenceline-controller"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			ev := agentEvent(c.kind, c.of)
			c.change(ev)
			e.expect(t, c.who.Create(t.Context(), ev), c.want)
		})
	}
	for name, change := range map[string]struct{ patch, want string }{
		"counts its own":            {`{"series":{"count":2,"lastObservedTime":"2030-01-01T00:00:00.000000Z"}}`, ""},
		"turns it to another's pod": {`{"regarding":{"name":"web-1"}}`, "field is immutable"},
	} {
		t.Run(name, func(t *testing.T) {
			ev := agentEvent("Pod", "web-0")
			check.OK(t, agent.Create(t.Context(), ev))
			e.expect(t, agent.Patch(t.Context(), ev, client.RawPatch(types.MergePatchType, []byte(change.patch))), change.want)
		})
	}
}

// testAgentServices: with the rights of the chart, an agent knows the service CIDRs, and makes no Service.
// Kubernetes 1.32 has no objects of them.
func (e *env) testAgentServices(t *testing.T) {
	want := "cannot create resource"
	if os.Getenv(controlplane.VersionVariable) == "oldest" {
		want = "an agent may create a Service as a dry run only"
	}
	config := check.Value(e.server.ServiceAccount(t.Context(), namespace, "fenceline-agent", nil))(t)
	agent := check.Value(client.NewWithWatch(config, client.Options{Scheme: e.scheme, Mapper: watch.Kinds()}))(t)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: namespace},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	e.eventually(t, "a refusal", func() error {
		err := agent.Create(t.Context(), service.DeepCopy())
		if err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("the agent creates a Service: %w, want %s", err, want)
		}
		return nil
	})
	services := servicecidr.Watched(agent, namespace, testr.New(t))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- services.Run(ctx) }()
	check.Receive(t, effective, "the service CIDRs", services.Answered())
	known, err := services.Prefixes()
	check.That(t, err == nil && fmt.Sprint(known) == "[10.96.0.0/16]", "the agent knows %v, %v", known, err)
	cancel()
	check.OK(t, <-ended)
}

// testControllerPods: the controller changes one annotation of the agents' pods.
func (e *env) testControllerPods(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "agent-x", Namespace: namespace, Labels: map[string]string{"app": "a"}, Annotations: map[string]string{"other": "1"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "agent"}}},
	}
	e.create(t, pod)
	const want = "the controller may change only the annotation fenceline.io/agent-index"
	for name, c := range map[string]struct{ patch, want string }{
		"writes the index":           {`{"metadata":{"annotations":{"fenceline.io/agent-index":"3"}}}`, ""},
		"writes another index":       {`{"metadata":{"annotations":{"fenceline.io/agent-index":"4"}}}`, ""},
		"removes the index":          {`{"metadata":{"annotations":{"fenceline.io/agent-index":null}}}`, ""},
		"changes no image":           {`{"spec":{"containers":[{"name":"agent","image":"evil"}]}}`, want},
		"adds no other annotation":   {`{"metadata":{"annotations":{"a":"b"}}}`, want},
		"changes no annotation":      {`{"metadata":{"annotations":{"other":"2"}}}`, want},
		"removes no annotation":      {`{"metadata":{"annotations":{"other":null}}}`, want},
		"changes no label":           {`{"metadata":{"labels":{"app":"b"}}}`, want},
		"adds no finalizer":          {`{"metadata":{"finalizers":["fenceline.io/x"]}}`, want},
		"hides nothing behind index": {`{"metadata":{"annotations":{"fenceline.io/agent-index":"5"},"labels":{"app":"b"}}}`, want},
	} {
		t.Run(name, func(t *testing.T) {
			e.expect(t, e.controller.Patch(t.Context(), pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(c.patch))), c.want)
		})
	}
}

func secret(name string, kind corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Type: kind}
}

// testControllerSecrets: a stolen token of the controller forges no release of Helm.
func (e *env) testControllerSecrets(t *testing.T) {
	const want = "the controller may create only the Secret fenceline-claim-key"
	token := secret("token", corev1.SecretTypeServiceAccountToken)
	token.Annotations = map[string]string{corev1.ServiceAccountNameKey: "fenceline-agent"}
	for name, c := range map[string]struct {
		secret *corev1.Secret
		want   string
	}{
		"the claim key":                 {secret("fenceline-claim-key", corev1.SecretTypeOpaque), ""},
		"the claim key without a type":  {secret("fenceline-claim-key", ""), ""},
		"a release of Helm":             {secret("sh.helm.release.v1.fenceline.v9", "helm.sh/release.v1"), want},
		"a release by that name":        {secret("fenceline-claim-key", "helm.sh/release.v1"), want},
		"a token of a service account":  {token, want},
		"another Secret of plain bytes": {secret("other", corev1.SecretTypeOpaque), want},
	} {
		t.Run(name, func(t *testing.T) { e.expect(t, e.controller.Create(t.Context(), c.secret, client.DryRunAll), c.want) })
	}
}
