// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// usableLimit is how long nodes may take to register and become Ready.
const usableLimit = 3 * time.Minute

// Kubeconfig returns the administrator's kubeconfig file.
func (c *Cluster) Kubeconfig() string { return c.controlPlane.Config.Kubeconfig("admin") }

// RESTConfig returns the administrator's access.
func (c *Cluster) RESTConfig() (*rest.Config, error) { return c.controlPlane.RESTConfig() }

// Kubectl runs kubectl as administrator and returns what it printed.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, "", c.binary(thirdparty.Kubernetes, "kubectl"), args...)
}

// Apply applies the objects of a manifest.
func (c *Cluster) Apply(ctx context.Context, manifest string) error {
	return c.kubectlWith(ctx, manifest, "apply", "--filename=-")
}

// kubectlWith runs kubectl with an input.
func (c *Cluster) kubectlWith(ctx context.Context, input string, args ...string) error {
	_, err := c.run(ctx, input, c.binary(thirdparty.Kubernetes, "kubectl"), args...)
	return err
}

// Helm runs helm as administrator and returns what it printed.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, "", c.binary(thirdparty.Helm, "helm"), args...)
}

// Tools returns the directories of kubectl, helm and `kubectl fenceline`, for a person's PATH.
func (c *Cluster) Tools() []string {
	return []string{c.state.Binaries[thirdparty.Kubernetes], c.state.Binaries[thirdparty.Helm], c.commandDir()}
}

// commandDir is the directory of `kubectl fenceline` after InstallFenceline.
func (c *Cluster) commandDir() string { return filepath.Join(c.dir, "bin") }

// environment returns the environment of a person who uses the cluster.
func (c *Cluster) environment() []string {
	path := strings.Join(append(c.Tools(), os.Getenv("PATH")), ":")
	return append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+path)
}

func (c *Cluster) run(ctx context.Context, input, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(input)
	cmd.Env = c.environment()
	output, err := cmd.CombinedOutput()
	if err != nil {
		return string(output), fmt.Errorf("%s %v: %w: %s", program, args, err, output)
	}
	return string(output), nil
}

// WaitReady returns when every node is Ready.
func (c *Cluster) WaitReady(ctx context.Context) error { return c.waitUsable(ctx, true) }

// waitUsable returns when every node is registered, and Ready if ready is set, and bare pods can be
// made: without a ServiceAccount they are refused.
func (c *Cluster) waitUsable(ctx context.Context, ready bool) (err error) {
	defer must.Catch(&err)
	api := c.api()
	return await.Until(ctx, usableLimit, 100*time.Millisecond, "the nodes", func(ctx context.Context) (err error) {
		defer must.Catch(&err)
		for _, n := range c.nodes {
			node := must.Value(api.Nodes().Get(ctx, n.Name(), metav1.GetOptions{}))
			must.That(!ready || slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			}), "node %s is not Ready", n.Name())
		}
		_, err = api.ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// api returns the administrator's access to nodes and pods.
func (c *Cluster) api() corev1client.CoreV1Interface {
	clients, err := kubernetes.NewForConfig(must.Value(c.RESTConfig()))
	must.Done(err, "connect to the API server")
	return clients.CoreV1()
}
