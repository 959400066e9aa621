// SPDX-License-Identifier: Apache-2.0

//go:build api

package uninstall

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/programs"
	"github.com/fenceline/fenceline/test/thirdparty"
)

const (
	namespace = "fenceline-system"
	// limit for anything that should come to pass.
	limit = 3 * time.Minute
)

// cluster is a cluster without machines.
type cluster struct {
	t        *testing.T
	server   *controlplane.Server
	api      client.Client
	helmFile string
	// program is the controller.
	program  string
	programs sync.WaitGroup

	mu sync.Mutex
	// said is what the steps have logged.
	said map[string]string
	// meanwhile happens before the next finish.
	meanwhile func() error
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	server := controlplane.Start(t)
	check.OK(t, server.StartControllerManager())
	c := &cluster{t: t, server: server, program: filepath.Join(t.TempDir(), "controller"), said: map[string]string{}, meanwhile: nothing}
	scheme := runtime.NewScheme()
	check.OK(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	c.api = check.Value(client.New(server.Admin(), client.Options{Scheme: scheme}))(t)
	check.OK(t, programs.Build(t.Context(), "controller", c.program))
	dir := check.Value(check.Value(thirdparty.NewBuilder(os.Stderr))(t).Dir(t.Context(), thirdparty.Helm))(t)
	c.helmFile = filepath.Join(dir, "helm")
	for _, name := range nodeNames {
		c.addNode(name)
	}
	k, ctx, done := &kubelet{cluster: c}, context.Background(), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
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
	if err := c.api.Create(c.t.Context(), o); err != nil {
		c.t.Fatalf("create %s: %v", o.GetName(), err)
	}
}

// helm runs helm with the chart's release and returns what it printed.
func (c *cluster) helm(args ...string) (string, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.helmFile, append(args, "--namespace", namespace)...)
	dir := c.t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.server.Kubeconfig(),
		"HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *cluster) mustHelm(args ...string) {
	c.t.Helper()
	out, err := c.helm(args...)
	check.Must(c.t, err == nil, "helm %v: %v\n%s", args, err, out)
}

// install installs the chart and waits until its agents run.
func (c *cluster) install() {
	c.t.Helper()
	c.mustHelm("install", "fenceline", "../../charts/fenceline", "--create-namespace")
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

func nothing() error { return nil }

// beforeFinish has something happen between the steps of the next uninstallation.
func (c *cluster) beforeFinish(do func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.meanwhile = do
}

// between does what was to happen, once.
func (c *cluster) between() error {
	c.mu.Lock()
	do := c.meanwhile
	c.meanwhile = nothing
	c.mu.Unlock()
	return do()
}

func (c *cluster) say(step, log string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said[step] = log
}

func (c *cluster) log(step string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said[step]
}

// leases counts the leases.
func (c *cluster) leases() int {
	c.t.Helper()
	var leases v1alpha1.IPLeaseList
	check.OK(c.t, c.api.List(c.t.Context(), &leases))
	return len(leases.Items)
}

// installed names what is left of Fenceline in its namespace: workloads, and
// roles of the uninstallation.
func (c *cluster) installed() map[string]bool {
	c.t.Helper()
	var (
		sets        appsv1.DaemonSetList
		deployments appsv1.DeploymentList
		roles       rbacv1.RoleList
	)
	left := map[string]bool{}
	for _, list := range []client.ObjectList{&sets, &deployments, &roles} {
		check.OK(c.t, c.api.List(c.t.Context(), list, client.InNamespace(namespace)))
	}
	for _, o := range sets.Items {
		left[o.Name] = true
	}
	for _, o := range deployments.Items {
		left[o.Name] = true
	}
	for _, o := range roles.Items {
		left["role "+o.Name] = true
	}
	return left
}
