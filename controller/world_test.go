// SPDX-License-Identifier: Apache-2.0

//go:build api || bench

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/reclaim"
	"github.com/fenceline/fenceline/internal/metricsendpoint"
	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
)

const (
	system = "fenceline-system"
	// extraGrace of the controller under test.
	extraGrace = time.Second
	// settle of the controller under test.
	settle = time.Second
	// limit for anything that should come to pass.
	limit = 2 * time.Minute
)

// world is a cluster without kubelets and without controllers but ours: nodes,
// agents and pods are what the test writes.
type world struct {
	*testing.T
	ctx    context.Context
	client client.Client
	// page is the address of the page; empty: the controller serves none.
	page string
}

// newWorld starts an API server with the namespaces system and default.
func newWorld(t *testing.T) (world, *controlplane.Server) {
	t.Helper()
	server := controlplane.New(t)
	scheme := runtime.NewScheme()
	check.OK(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	c := check.Value(client.New(server.Admin(), client.Options{Scheme: scheme}))(t)
	w := world{T: t, ctx: t.Context(), client: c}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	for _, namespace := range []string{system, "default"} {
		w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})
	}
	return w, server
}

// policy of the controller under test.
func policy() reclaim.Policy {
	return reclaim.Policy{Enabled: true, Terminating: true, ExtraGrace: extraGrace, NodeDown: reclaim.NodeDown{Take: true}}
}

// runController runs the controller in this process until the test ends, or
// until the function that it returns is called.
func (w world) runController(config *rest.Config, policy reclaim.Policy, own clock.WithTicker) (stop func()) {
	w.Helper()
	return w.runLogging(config, policy, own, nil)
}

// runLogging does the same; unless it is nil, log gets what the controller says.
func (w world) runLogging(config *rest.Config, policy reclaim.Policy, own clock.WithTicker, log io.Writer) (stop func()) {
	w.Helper()
	var said slog.Handler = slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})
	if log != nil {
		said = slog.NewMultiHandler(said, slog.NewJSONHandler(log, nil))
	}
	logger := logr.FromSlogHandler(said)
	ctrl.SetLogger(logger)
	// One controller after another registers the same metrics.
	ctrlmetrics.Registry = prometheus.NewRegistry()
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := newManager(ctx, config, options{
		namespace: system, metrics: metricsendpoint.Endpoint{Address: "0"}, healthAddress: "0", auditPeriod: time.Hour,
		reclaim: policy, settle: settle, uiAddress: w.page, scheduling: true,
	}, logger, own)
	if err != nil {
		cancel()
		w.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		check.Is(w, <-ended, nil, "the controller ended:")
	})
	w.Cleanup(stop)
	return stop
}

// in returns the world for a subtest.
func (w world) in(t *testing.T) world {
	return world{T: t, ctx: t.Context(), client: w.client, page: w.page}
}

func (w world) create(o client.Object) {
	w.Helper()
	err := w.client.Create(w.ctx, o)
	check.Must(w, err == nil, "create %T %s: %v", o, o.GetName(), err)
}

// change edits an object as it is now, again if somebody else wrote meanwhile.
func change[T client.Object](w world, o T, edit func(T)) {
	w.Helper()
	w.write(o, func() error {
		edit(o)
		return w.client.Update(w.ctx, o)
	})
}

// changeStatus is change of the status.
func changeStatus[T client.Object](w world, o T, edit func(T)) {
	w.Helper()
	w.write(o, func() error {
		edit(o)
		return w.client.Status().Update(w.ctx, o)
	})
}

// write reads an object and writes it, until nobody else was quicker.
func (w world) write(o client.Object, update func() error) {
	w.Helper()
	w.eventually("change "+o.GetName(), func() error {
		if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		return update()
	})
}

// eventually waits until the condition holds.
func (w world) eventually(what string, condition func() error) {
	w.Helper()
	w.eventuallyWithin(limit, what, condition)
}

func (w world) eventuallyWithin(limit time.Duration, what string, condition func() error) {
	w.Helper()
	check.OK(w, await.Until(w.ctx, limit, what, func(context.Context) error { return condition() }))
}

// unless returns an error if something does not hold.
func unless(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// readyNode makes a node that is Ready, with an agent that is.
func (w world) readyNode(name string) {
	w.Helper()
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	w.setReady(name, corev1.ConditionTrue)
	agent := w.podObject(system, "agent-"+name, name)
	agent.Spec.HostNetwork = true
	agent.Labels = map[string]string{"app.kubernetes.io/name": "fenceline", "app.kubernetes.io/component": "agent"}
	w.create(agent)
	w.setPodStatus(agent, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
}

func (w world) setReady(name string, status corev1.ConditionStatus) {
	w.Helper()
	changeStatus(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Now()}}
	})
}

// setPodStatus writes as a kubelet does, which loses a race against the agents' indexes now and then.
func (w world) setPodStatus(pod *corev1.Pod, edit func(*corev1.PodStatus)) {
	w.Helper()
	changeStatus(w, pod, func(p *corev1.Pod) { edit(&p.Status) })
}

func (w world) podObject(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](1), Containers: []corev1.Container{{Name: "main", Image: "none"}},
		},
	}
}

// runningPod makes a pod on the node that Kubernetes believes Running.
func (w world) runningPod(name, node string) *corev1.Pod {
	w.Helper()
	pod := w.podObject("default", name, node)
	w.create(pod)
	w.setPodStatus(pod, func(s *corev1.PodStatus) { s.Phase = corev1.PodRunning })
	return pod
}

func (w world) remove(o client.Object, options ...client.DeleteOption) {
	w.Helper()
	check.OK(w, w.client.Delete(w.ctx, o, options...))
}

func (w world) pool(name, subnet string) *v1alpha1.IPPool {
	w.Helper()
	pool := &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.IPPoolSpec{Subnet: subnet, Reclaim: &v1alpha1.Reclaim{
			ExtraGrace: &v1alpha1.Duration{Duration: extraGrace}, Cooldown: &v1alpha1.Duration{Duration: 3 * time.Second},
		}},
	}
	w.create(pool)
	return pool
}

// bound makes the lease that the pod's agent would have made.
func (w world) bound(pool, address string, pod *corev1.Pod, edits ...func(*v1alpha1.Holder)) *v1alpha1.IPLease {
	w.Helper()
	lease := &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName("", netip.MustParseAddr(address))},
		Spec: v1alpha1.IPLeaseSpec{
			Address: address, Pool: pool, Parent: "eth0", State: v1alpha1.StateBound,
			Since: metav1.NewTime(time.Now().Add(-time.Hour)), NodeName: pod.Spec.NodeName, Session: "node/boot",
			Holder: &v1alpha1.Holder{
				Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID), Interface: "eth0",
				ContainerID: "c-" + pod.Name, MAC: "02:00:00:00:00:0a", Guarded: true,
			},
		},
	}
	for _, edit := range edits {
		edit(lease.Spec.Holder)
	}
	w.create(lease)
	return lease
}

// retained makes the lease of a StatefulSet's pod that is kept for its name.
func (w world) retained(pool, address, set string, ordinal int, edits ...func(*v1alpha1.IPLeaseSpec)) *v1alpha1.IPLease {
	w.Helper()
	lease := &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: address},
		Spec: v1alpha1.IPLeaseSpec{
			Address: address, Pool: pool, State: v1alpha1.StateRetained, Since: metav1.Now(),
			Holder: &v1alpha1.Holder{Namespace: "default", Pod: fmt.Sprintf("%s-%d", set, ordinal), OwnerKind: "StatefulSet", OwnerName: set},
		},
	}
	for _, edit := range edits {
		edit(&lease.Spec)
	}
	w.create(lease)
	return lease
}

func forever(s *v1alpha1.IPLeaseSpec) {
	s.Retention = &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainForever}
}

func lasting(d time.Duration) func(*v1alpha1.IPLeaseSpec) {
	return func(s *v1alpha1.IPLeaseSpec) {
		s.Retention = &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainFor, Duration: &metav1.Duration{Duration: d}}
	}
}

func (w world) statefulSet(name string, replicas int32, edits ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	w.Helper()
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template(name),
		},
	}
	for _, edit := range edits {
		edit(set)
	}
	w.create(set)
	return set
}

// lease returns the lease as it is, and nil if it is gone.
func (w world) lease(name string) *v1alpha1.IPLease {
	w.Helper()
	lease := &v1alpha1.IPLease{}
	err := w.client.Get(w.ctx, types.NamespacedName{Name: name}, lease)
	check.Must(w, client.IgnoreNotFound(err) == nil, "%v", err)
	if err != nil {
		return nil
	}
	return lease
}

// quarantined counts the Quarantined leases.
func (w world) quarantined() int {
	w.Helper()
	var leases v1alpha1.IPLeaseList
	check.OK(w, w.client.List(w.ctx, &leases, client.MatchingFields{"spec.state": string(v1alpha1.StateQuarantined)}))
	return len(leases.Items)
}

// waitQuarantined waits until the lease is taken for the reason.
func (w world) waitQuarantined(name string, reason v1alpha1.LeaseReason) *v1alpha1.IPLease {
	w.Helper()
	var lease *v1alpha1.IPLease
	w.eventually(fmt.Sprintf("quarantine of %s for %s", name, reason), func() error {
		if lease = w.lease(name); lease == nil {
			return errors.New("the lease is gone")
		}
		return unless(lease.Spec.State == v1alpha1.StateQuarantined && lease.Spec.Reason == reason, "it is %s (%s)", lease.Spec.State, lease.Spec.Reason)
	})
	return lease
}

// template returns a template of pods with annotations of Fenceline: names without prefix, and values.
func template(app string, annotations ...string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}, Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		t.Annotations[v1alpha1.AnnotationPrefix+annotations[i]] = annotations[i+1]
	}
	t.Spec.Containers = []corev1.Container{{Name: "main", Image: "none"}}
	return t
}

func (w world) waitGone(lease string) {
	w.Helper()
	w.eventually("end of lease "+lease, func() error {
		if l := w.lease(lease); l != nil {
			return fmt.Errorf("it is %s", l.Spec.State)
		}
		return nil
	})
}

// waitMessage waits until the lease carries the reason, and a message with the words.
func (w world) waitMessage(name string, reason v1alpha1.LeaseReason, words string) {
	w.Helper()
	w.eventually("message on lease "+name, func() error {
		l := w.lease(name)
		if l == nil {
			return errors.New("the lease is gone")
		}
		return unless(l.Spec.Reason == reason && strings.Contains(l.Spec.Message, words), "it says %s: %q", l.Spec.Reason, l.Spec.Message)
	})
}

// waitEvent waits for an event about an object of that name, with all the words.
func (w world) waitEvent(namespace, reason, about string, words ...string) {
	w.Helper()
	w.waitEventAbout(namespace, reason, about, func(o corev1.ObjectReference) bool { return o.Name == about }, words)
}

// waitEventOf waits for an event about an object that kubectl describe shows: it names the UID.
func (w world) waitEventOf(o client.Object, reason string, words ...string) {
	w.Helper()
	w.waitEventAbout(o.GetNamespace(), reason, o.GetName(), func(about corev1.ObjectReference) bool { return about.UID == o.GetUID() }, words)
}

func (w world) waitEventAbout(namespace, reason, name string, is func(corev1.ObjectReference) bool, words []string) {
	w.Helper()
	w.eventually(fmt.Sprintf("event %s about %s", reason, name), func() error {
		var list eventsv1.EventList
		if err := w.client.List(w.ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		var heard []string
		for _, e := range list.Items {
			if e.Reason != reason || !is(e.Regarding) {
				continue
			}
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e.Note, word) }) {
				return nil
			}
			heard = append(heard, e.Note)
		}
		return fmt.Errorf("heard %q", heard)
	})
}

// waitMetric waits until the series, "name label=value label=value", has a value that is right.
func (w world) waitMetric(series string, right func(float64) bool) {
	w.Helper()
	w.eventually("metric "+series, func() error {
		families, err := ctrlmetrics.Registry.Gather()
		if err != nil {
			return err
		}
		for _, f := range families {
			for _, m := range f.Metric {
				key := f.GetName()
				for _, l := range m.Label {
					key += " " + l.GetName() + "=" + l.GetValue()
				}
				value := m.GetCounter().GetValue() + m.GetGauge().GetValue()
				if key == series {
					return unless(right(value), "it is %v", value)
				}
			}
		}
		return errors.New("there is none")
	})
}
