// SPDX-License-Identifier: Apache-2.0

//go:build api || bench

package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
		reclaim: policy, settle: settle, uiAddress: w.page,
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
	check.OK(w, await.Until(w.ctx, limit, 20*time.Millisecond, what, func(context.Context) error { return condition() }))
}

// readyNode makes a node that is Ready, with an agent that is.
func (w world) readyNode(name string) {
	w.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.create(node)
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

// setPodStatus writes as a kubelet does, which loses a race against the agents'
// indexes now and then.
func (w world) setPodStatus(pod *corev1.Pod, edit func(*corev1.PodStatus)) {
	w.Helper()
	changeStatus(w, pod, func(p *corev1.Pod) { edit(&p.Status) })
}

func (w world) podObject(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers:                    []corev1.Container{{Name: "main", Image: "none"}},
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
