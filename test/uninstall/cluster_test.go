// SPDX-License-Identifier: Apache-2.0

//go:build api

package uninstall

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/programs"
)

const (
	namespace = "fenceline-system"
	// limit for anything that should come to pass.
	limit = 3 * time.Minute
)

// cluster is a cluster without machines.
type cluster struct {
	t      *testing.T
	server *controlplane.Server
	api    client.Client
	// program is the controller.
	program  string
	programs sync.WaitGroup
	// said is what the steps have logged.
	said sync.Map
	// meanwhile happens before the next finish.
	meanwhile chan func() error
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	server := controlplane.Start(t)
	check.OK(t, server.StartControllerManager())
	c := &cluster{t: t, server: server, program: filepath.Join(t.TempDir(), "controller"), meanwhile: make(chan func() error, 1)}
	scheme := runtime.NewScheme()
	check.OK(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	c.api = check.Value(client.New(server.Admin(), client.Options{Scheme: scheme}))(t)
	check.OK(t, programs.Build(t.Context(), "controller", c.program))
	for _, name := range nodeNames {
		c.addNode(name)
	}
	k := &kubelet{cluster: c}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { k.run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done; c.programs.Wait() })
	return c
}

func (c *cluster) addNode(name string) {
	c.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	c.create(node)
	status := corev1.ConditionTrue
	if name == "off" {
		status = corev1.ConditionUnknown
	}
	// The controllers of Kubernetes taint the node meanwhile.
	c.eventually("status of node "+name, func() error {
		if err := c.api.Get(c.t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		return c.api.Status().Update(c.t.Context(), node)
	})
}

func (c *cluster) create(o client.Object) {
	c.t.Helper()
	check.OK(c.t, c.api.Create(c.t.Context(), o))
}

// helm runs helm with the chart's release and returns what it printed.
func (c *cluster) helm(args ...string) (string, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Minute)
	defer cancel()
	return controlplane.Helm(ctx, c.server.Kubeconfig(), append(args, "--namespace", namespace)...)
}

func (c *cluster) mustHelm(args ...string) {
	c.t.Helper()
	out, err := c.helm(args...)
	check.Must(c.t, err == nil, "helm %v: %v\n%s", args, err, out)
}

// install installs the chart and waits until its agents run.
func (c *cluster) install() {
	c.t.Helper()
	c.mustHelm("install", "fenceline", "../../charts/fenceline", "--create-namespace", "--set", "scheduling=true")
	c.awaitAgents()
}

func (c *cluster) awaitAgents() {
	c.t.Helper()
	c.eventually("agents", func() error {
		set := &appsv1.DaemonSet{}
		if err := c.api.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: "fenceline-agent"}, set); err != nil {
			return err
		}
		if n := set.Status.NumberReady; int(n) != len(nodeNames)-1 {
			return fmt.Errorf("%d are Ready", n)
		}
		return nil
	})
}

func (c *cluster) eventually(what string, condition func() error) {
	c.t.Helper()
	check.Eventually(c.t, limit, what, condition)
}

func (c *cluster) log(step string) string {
	said, _ := c.said.Load(step)
	return fmt.Sprint(said)
}

// has judges the numbers of leases, and of finalizers of the pool.
func (c *cluster) has(leases, finalizers int) {
	c.t.Helper()
	list, pool := &v1alpha1.IPLeaseList{}, &v1alpha1.IPPool{}
	check.OK(c.t, errors.Join(c.api.List(c.t.Context(), list), c.api.Get(c.t.Context(), client.ObjectKey{Name: "blue"}, pool)))
	check.That(c.t, len(list.Items) == leases && len(pool.Finalizers) == finalizers, "%d leases, finalizers %v", len(list.Items), pool.Finalizers)
}

// installed names what is left of Fenceline in its namespace: workloads, and roles of the uninstallation.
func (c *cluster) installed() map[string]bool {
	c.t.Helper()
	left := map[string]bool{}
	for _, list := range []client.ObjectList{&appsv1.DaemonSetList{}, &appsv1.DeploymentList{}, &rbacv1.RoleList{}} {
		check.OK(c.t, c.api.List(c.t.Context(), list, client.InNamespace(namespace)))
		check.OK(c.t, meta.EachListItem(list, func(o runtime.Object) error {
			left[fmt.Sprintf("%T %s", o, o.(client.Object).GetName())] = true
			return nil
		}))
	}
	return left
}
