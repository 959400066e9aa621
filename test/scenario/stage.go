// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
func (s *Stage) controllerNode(ctx context.Context) *cluster.Node {
	pods := s.ours(ctx, "controller")
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return isReady(&p) })
	must(i >= 0, "look for the controller: no pod of it is Ready")
	return value(s.NodeByName(pods[i].Spec.NodeName))
}

// victim returns a node that can be cut off: not the node of the controller.
func (s *Stage) victim(ctx context.Context) *cluster.Node {
	others := s.others(s.controllerNode(ctx))
	must(len(others) > 0, "a single node cannot be cut off")
	return others[0]
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
func (a *act) look(ctx context.Context) {
	a.show(ctx, "fenceline", "status")
	a.show(ctx, "fenceline", "map", a.namespace)
}

// show runs a kubectl command and prints it with its output.
func (a *act) show(ctx context.Context, args ...string) {
	a.story.Show("kubectl "+strings.Join(args, " "), value(a.Kubectl(ctx, args...)))
}
