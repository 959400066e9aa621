// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
)

// Stage is a running cluster with Fenceline installed.
type Stage struct {
	*cluster.Cluster
	api client.WithWatch
}

// Open connects to a cluster.
func Open(c *cluster.Cluster) (*Stage, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 200, 400
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return &Stage{Cluster: c, api: api}, nil
}

// controllerNode returns the node of the controller. No scenario cuts this node off: the controller
// would have to move to another node first, which takes 30 s.
func (s *Stage) controllerNode(ctx context.Context) (*cluster.Node, error) {
	pods := &corev1.PodList{}
	err := s.api.List(ctx, pods, client.InNamespace(cluster.FencelineNamespace),
		client.MatchingLabels{"app.kubernetes.io/component": "controller"})
	if err != nil {
		return nil, fmt.Errorf("look for the controller: %w", err)
	}
	for i := range pods.Items {
		if isReady(&pods.Items[i]) {
			return s.NodeByName(pods.Items[i].Spec.NodeName)
		}
	}
	return nil, errors.New("look for the controller: no pod of it is Ready")
}

// victim returns a node that can be cut off: not the node of the controller.
func (s *Stage) victim(ctx context.Context) (*cluster.Node, error) {
	controller, err := s.controllerNode(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range s.Nodes() {
		if n.Name() != controller.Name() {
			return n, nil
		}
	}
	return nil, errors.New("a single node cannot be cut off")
}

// others returns all nodes except the given one.
func (s *Stage) others(node *cluster.Node) []*cluster.Node {
	var others []*cluster.Node
	for _, n := range s.Nodes() {
		if n.Name() != node.Name() {
			others = append(others, n)
		}
	}
	return others
}

// look shows the cluster and the pool of the scenario by `kubectl fenceline`.
func (a *act) look(ctx context.Context) error {
	return errors.Join(a.show(ctx, "fenceline", "status"), a.show(ctx, "fenceline", "map", a.namespace))
}

// show runs a kubectl command and prints it with its output.
func (a *act) show(ctx context.Context, args ...string) error {
	output, err := a.Kubectl(ctx, args...)
	if err != nil {
		return err
	}
	a.story.Show("kubectl "+strings.Join(args, " "), output)
	return nil
}
