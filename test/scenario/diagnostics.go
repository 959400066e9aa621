// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// logLimit is the time for a node to return its logs. A node that is cut off never does.
	logLimit = 5 * time.Second
	// dumpLimit is how long each question of a dump may take.
	dumpLimit = 10 * time.Second
)

// agentLog returns what the agent on the node has logged.
func (s *Stage) agentLog(ctx context.Context, node *cluster.Node) string {
	pod := s.agentPod(ctx, node)
	ctx, cancel := context.WithTimeout(ctx, logLimit)
	defer cancel()
	return value(s.Kubectl(ctx, "logs", "--namespace", pod.Namespace, "--container=agent", pod.Name))
}

// agentPod returns the pod of the node's agent.
func (s *Stage) agentPod(ctx context.Context, node *cluster.Node) *corev1.Pod {
	pods := s.ours(ctx, "agent", client.MatchingFields{"spec.nodeName": node.Name()})
	must(len(pods) == 1, "look for the agent of %s: there are %d", node.Name(), len(pods))
	return &pods[0]
}

// ours returns the pods of a component of Fenceline.
func (s *Stage) ours(ctx context.Context, component string, among ...client.ListOption) []corev1.Pod {
	pods := &corev1.PodList{}
	among = append(among, client.InNamespace(cluster.FencelineNamespace), client.MatchingLabels{"app.kubernetes.io/component": component})
	did(s.api.List(ctx, pods, among...), "list the pods of component %s", component)
	return pods.Items
}

// Dump writes files into a directory, from which the cause of a failure can be found. Its error
// names what is missing.
func (s *Stage) Dump(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("dump diagnostics: %w", err)
	}
	var errs []error
	write := func(name, content string, err error) {
		if err != nil {
			content += "\n" + err.Error() + "\n"
			errs = append(errs, err)
		}
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	for name, args := range map[string][]string{
		"leases.yaml":    {"get", "fllease", "--output=yaml"},
		"pools.yaml":     {"get", "flpool", "--output=yaml"},
		"objects.txt":    {"get", "flpool,fllease,nodes,pods", "--all-namespaces", "--output=wide"},
		"events.txt":     {"get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp"},
		"controller.log": {"logs", "--namespace", cluster.FencelineNamespace, "--selector=app.kubernetes.io/component=controller", "--tail=-1"},
	} {
		limited, cancel := context.WithTimeout(ctx, dumpLimit)
		output, err := s.Kubectl(limited, args...)
		cancel()
		write(name, output, err)
	}
	for _, n := range s.Nodes() {
		output, err := n.Exec(ctx, "sh", "-c", "cat /var/log/pods/"+cluster.FencelineNamespace+"_fenceline-agent-*/agent/*.log")
		write("agent-"+n.Name()+".log", output, err)
		log, err := os.ReadFile(filepath.Join(s.LogDir(n.Name()), "kubelet.log"))
		write("kubelet-"+n.Name()+".log", string(log), err)
	}
	return errors.Join(errs...)
}
