// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/hostlink/cidr"
	"github.com/fenceline/fenceline/agent/watch"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
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
		"the controller creates none but for a move":              {e.controller, attempt{create, lease(), nil, "the controller creates only leases"}},
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
	for _, name := range []string{"ippools.fenceline.io", "ipleases.fenceline.io", "reservedips.fenceline.io", "ipsubnets.fenceline.io", "moves.fenceline.io"} {
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

// testAgentSpeakers: an agent records pods of its own node as speakers, in place of others, and nothing else.
func (e *env) testAgentSpeakers(t *testing.T) {
	r := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "vip"}, Spec: v1alpha1.ReservedIPSpec{
		IPs: []string{"10.1.0.8", "10.1.0.9"}, Virtual: &v1alpha1.ReservedVirtual{Namespace: "shop", MatchLabels: map[string]string{"app": "a"}},
	}}
	check.OK(t, e.admin.Create(t.Context(), r))
	agent, other := e.agent(t, "n1"), e.agent(t, "n2")
	write := func(by client.Client, change func(*v1alpha1.ReservedIPStatus)) error {
		check.OK(t, e.admin.Get(t.Context(), client.ObjectKeyFromObject(r), r))
		change(&r.Status)
		return by.Status().Update(t.Context(), r.DeepCopy())
	}
	speaks := func(addr, node string) func(*v1alpha1.ReservedIPStatus) {
		return func(s *v1alpha1.ReservedIPStatus) {
			s.Speakers = slices.DeleteFunc(s.Speakers, func(o v1alpha1.Speaker) bool { return o.Address == addr })
			s.Speakers = append(s.Speakers, v1alpha1.Speaker{Address: addr, Pod: "a", Node: node, MAC: "02:00:00:00:00:01", Since: metav1.NowMicro()})
		}
	}
	check.OK(t, write(agent, speaks("10.1.0.8", "n1")))
	check.OK(t, write(agent, speaks("10.1.0.9", "n1")))
	check.OK(t, write(other, speaks("10.1.0.8", "n2")))
	const want = "may not record a speaker of another node"
	e.refused(t, write(agent, speaks("10.1.0.9", "n2")), "the agent of node n1 "+want)
	e.refused(t, write(agent, func(s *v1alpha1.ReservedIPStatus) { s.Speakers = s.Speakers[1:] }), "the agent of node n1 "+want)
	e.refused(t, write(e.unboundAgent(t), speaks("10.1.0.9", "n1")), "the agent of node (none) "+want)
	token := func(token int64) func(*v1alpha1.ReservedIPStatus) {
		return func(s *v1alpha1.ReservedIPStatus) {
			speaks("10.1.0.8", "n1")(s)
			s.Speakers[len(s.Speakers)-1].Token = token
		}
	}
	check.OK(t, e.admin.Get(t.Context(), client.ObjectKeyFromObject(r), r))
	now := check.Value(strconv.ParseInt(r.ResourceVersion, 10, 64))(t)
	check.OK(t, write(agent, token(now)))
	e.refused(t, write(agent, token(now+2e9)), "the token of a speaker is that of the write")
	e.refused(t, write(agent, token(now-1)), "token never falls")
	for name, change := range map[string]func(*v1alpha1.ReservedIPStatus){
		"conditions": func(s *v1alpha1.ReservedIPStatus) {
			s.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Ready", LastTransitionTime: metav1.Now()}}
		},
		"inUse": func(s *v1alpha1.ReservedIPStatus) { s.InUse = 7 }, "observedGeneration": func(s *v1alpha1.ReservedIPStatus) { s.ObservedGeneration = 7 },
	} {
		t.Run(name, func(t *testing.T) {
			e.refused(t, write(agent, change), "an agent writes status.speakers of a ReservedIP only")
		})
	}
}

// testAgentHints: an agent asks in the hint of its own node, and only the controller answers.
func (e *env) testAgentHints(t *testing.T) {
	hint := func(node string) *v1alpha1.LeaseHint {
		return &v1alpha1.LeaseHint{
			ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: v1alpha1.LeaseHintSpec{Start: "s"},
			Status: v1alpha1.LeaseHintStatus{Start: "s", Free: []v1alpha1.FreeAddress{{Pool: "p", Address: "10.0.0.1"}}},
		}
	}
	const want = " may not write the hint of node n2"
	agent, other := e.agent(t, "n1"), hint("n2")
	e.refused(t, agent.Create(t.Context(), hint("n2")), "the agent of node n1"+want)
	e.refused(t, e.unboundAgent(t).Create(t.Context(), hint("n2")), "the agent of node (none)"+want)
	made := hint("")
	made.GenerateName = "n2-"
	e.refused(t, e.unboundAgent(t).Create(t.Context(), made.DeepCopy()), "the agent of node (none) may not write the hint of node ")
	e.refused(t, agent.Create(t.Context(), made), "the agent of node n1 may not write the hint of node ")
	kept := hint("n1")
	kept.Finalizers = []string{"example.com/kept"}
	e.refused(t, agent.Create(t.Context(), kept), "metadata.finalizers of a hint")
	check.OK(t, e.admin.Create(t.Context(), other))
	other.Spec.Start = "another"
	e.refused(t, agent.Update(t.Context(), other), "the agent of node n1"+want)

	own := hint("n1")
	check.OK(t, agent.Create(t.Context(), own))
	check.Equal(t, own.Status.Start, "", "the agent has answered its own question:")
	since := metav1.NewMicroTime(time.Date(2030, 1, 1, 0, 0, 0, 123456789, time.UTC).Truncate(time.Microsecond))
	own.Spec.Start, own.Status.Start, own.Spec.Round = "next", "next", "r"
	own.Spec.Waits = []v1alpha1.PoolWait{{Pool: "p", Since: since}}
	check.OK(t, agent.Update(t.Context(), own))
	check.Equal(t, own.Status.Start, "", "the agent has answered its own question:")
	check.None(t, own.Status.Free, "the agent has told itself of")
	check.That(t, own.Spec.Waits[0].Since.Equal(&since), "the wait began at %v, want %v", own.Spec.Waits[0].Since, since)
	crowded := own.DeepCopy()
	crowded.Spec.Waits = slices.Repeat(own.Spec.Waits, v1alpha1.MaxHintWaits+1)
	check.That(t, apierrors.IsInvalid(agent.Update(t.Context(), crowded)), "too many waits are stored")
	kept = own.DeepCopy()
	kept.Finalizers = []string{"example.com/kept"}
	e.refused(t, agent.Update(t.Context(), kept), "metadata.finalizers of a hint")
	own.Status.Start = "next"
	e.refused(t, agent.Status().Update(t.Context(), own.DeepCopy()), "leasehints/status")
	e.refused(t, agent.Delete(t.Context(), own), "cannot delete resource")
	check.OK(t, e.controller.Status().Patch(t.Context(), own, client.RawPatch(types.MergePatchType, []byte(`{"status":{"start":"next","leases":[{"name":"10.0.0.1","version":"7"}]}}`))))
	check.That(t, own.Status.Start == "next" && len(own.Status.Leases) == 1, "the answer is %+v", own.Status)
	for what, patch := range map[string]string{
		"without a version": `{"status":{"changed":[{"name":"10.0.0.1"}]}}`,
		"too long a start":  `{"status":{"start":"` + strings.Repeat("a", 65) + `"}}`,
		"an unnamed pool":   `{"status":{"free":[{"address":"10.0.0.1"}]}}`,
	} {
		err := e.controller.Status().Patch(t.Context(), own.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
		check.That(t, apierrors.IsInvalid(err), "%s: %v", what, err)
	}
}

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
	book := check.Value(attachment.Open(t.TempDir()))(t)
	defer book.Close()
	services := cidr.WatchedServices(agent, namespace, book.Services, testr.New(t))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- services.Run(ctx) }()
	services.Await(t.Context())
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
