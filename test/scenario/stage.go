// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/scrape"
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
// would have to move to another node first, which takes 30 s. It waits for a Ready controller: after a
// silence of its node, none is Ready for a moment.
func (s *Stage) controllerNode(ctx context.Context) (node *cluster.Node) {
	eventually(ctx, podLimit, "a Ready controller", func(ctx context.Context) {
		pods := s.ours(ctx, "controller")
		i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return isReady(&p) })
		must(i >= 0, "none of its %d pods is Ready", len(pods))
		node = value(s.NodeByName(pods[i].Spec.NodeName))
	})
	return node
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

// Ports of the metrics on a node, as the chart sets them.
const (
	agentMetrics      = 9474
	controllerMetrics = 9475
)

// scraped returns the metrics of a process of a node.
func scraped(ctx context.Context, node *cluster.Node, port uint16) scrape.Metrics {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return value(scrape.Read(ctx, netip.AddrPortFrom(node.Config.Addresses[0], port).String(), nil))
}

// agents adds a value up over the agents of some nodes.
func agents(ctx context.Context, nodes []*cluster.Node, name string, labels map[string]string) (sum float64) {
	for _, n := range nodes {
		count, _ := scraped(ctx, n, agentMetrics).Sum(name, labels)
		sum += count
	}
	return sum
}

// eventLimit is the time in which a report must arrive.
const eventLimit = time.Minute

// event waits for an event about a pod whose message has the text.
func (a *act) event(ctx context.Context, pod, reason, text string) *corev1.Event {
	return a.eventOf(ctx, "Pod", pod, reason, text)
}

// eventOf waits for an event about an object whose message has the text. It waits as long as for the
// start of a pod, because some events end a failed start.
func (a *act) eventOf(ctx context.Context, kind, name, reason, text string) *corev1.Event {
	var found *corev1.Event
	what := fmt.Sprintf("event %s of %s %s with %q", reason, kind, name, text)
	eventually(ctx, podLimit, what, func(ctx context.Context) {
		events := &corev1.EventList{}
		check(a.api.List(ctx, events, client.MatchingFields{"involvedObject.kind": kind, "involvedObject.name": name}))
		var seen []string
		for i := range events.Items {
			e := &events.Items[i]
			if e.Reason == reason && strings.Contains(e.Message, text) {
				found = e
				return
			}
			seen = append(seen, e.Reason+": "+e.Message)
		}
		fail("there are %q", seen)
	})
	return found
}

// eventTime is the last time of an event, whichever API wrote it.
func eventTime(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}
