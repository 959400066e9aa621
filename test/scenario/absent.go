// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// statusLimit is the time for two STATUS requests to the runtime and a report to the API server.
	// The kubelet asks every five seconds.
	statusLimit = 60 * time.Second
	// statusFile is where the plugin records the time since which the agent is away.
	statusFile = "/run/fenceline/agent.sock.status"
	// conflistFile is written by the agent at each start.
	conflistFile = "/etc/cni/net.d/90-fenceline.conflist"
	// noGrace edits the network so that its STATUS reports an absent agent at once.
	noGrace = `s/"type": "fenceline"/"type": "fenceline", "status_grace": "0s"/`
)

// playAbsent: the agent puts its files back after somebody has removed them. A node whose agent is
// away for less than ipam.status_grace stays Ready. Afterwards it is not Ready and reports what is
// missing, until the agent is back. Its pods notice none of this.
func playAbsent(ctx context.Context, a *act) {
	a.makePool(ctx, 2, nil)
	node := a.victim(ctx)
	pod := a.runPod(ctx, "web", node, nil)
	w := a.watch(addressOf(pod))
	w.pings.waitFor(ctx, 20)
	began := time.Now()
	a.filesComeBack(ctx, node)
	ready := a.readinessOf(ctx, node)
	back := a.keepAgentAway(ctx, node)
	a.story.Say("The agent of %s has ended.", node.Name())
	ready.outlastsAbsence(ctx)
	ready.tellsOfAbsence(ctx, back)
	w.pings.waitFor(ctx, 20)
	w.pings.noneLost(began)
	a.story.Say("Pod %s answered all %d pings.", pod.Name, len(w.pings.all()))
}

// outlastsAbsence: the runtime asks for STATUS twice without an agent, and the node stays Ready.
func (r *readiness) outlastsAbsence(ctx context.Context) {
	gone := time.Now()
	eventually(ctx, statusLimit, "a STATUS without an agent", func(ctx context.Context) {
		output := value(r.node.Exec(ctx, "cat", statusFile))
		must(strings.Contains(output, "failsSince"), "the plugin remembers %s", output)
	})
	r.isAskedAgain(ctx)
	during(func() { r.stayed(ctx) }, "the agent was away for %s", round(time.Since(gone)))
	r.story.Say("The runtime has called STATUS twice since, and each change of the Node says Ready.")
}

// isAskedAgain waits for one more STATUS, at which the plugin reads statusFile.
func (r *readiness) isAskedAgain(ctx context.Context) {
	const unread = "0"
	value(r.node.Exec(ctx, "touch", "-a", "-d", "@"+unread, statusFile)) // forgets when the plugin read last
	eventually(ctx, statusLimit, "another STATUS", func(ctx context.Context) {
		output := value(r.node.Exec(ctx, "stat", "-c", "%X", statusFile))
		must(strings.TrimSpace(output) != unread, "the plugin has not been called")
	})
}

// tellsOfAbsence: without a grace the node is not Ready and reports why. When the agent is back, the
// node is Ready and the grace is in the network again.
func (r *readiness) tellsOfAbsence(ctx context.Context, back func(context.Context)) {
	value(r.node.Exec(ctx, "sed", "-i", noGrace, conflistFile))
	n := r.until(ctx, statusLimit, "NotReady", func(n *corev1.Node) bool { return isNodeReady(n) != nil })
	told := isNodeReady(n)
	for _, words := range []string{"NetworkReady=false", "no answer from the agent on /run/fenceline/agent.sock"} {
		must(strings.Contains(told.Error(), words), "the condition does not say %q: %w", words, told)
	}
	r.story.Say("Without status_grace: %s", told)
	back(ctx)
	r.until(ctx, statusLimit, "Ready", func(n *corev1.Node) bool { return isNodeReady(n) == nil })
	r.story.Say("The agent is back, and the node is Ready.")
}

// keepAgentAway ends the agent of a node. back starts it again, and restores the template of the
// DaemonSet, so that the other agents keep running.
func (a *act) keepAgentAway(ctx context.Context, node *cluster.Node) (back func(context.Context)) {
	var strategy appsv1.DaemonSetUpdateStrategy
	a.changeAgents(ctx, func(spec *appsv1.DaemonSetSpec) {
		strategy, spec.UpdateStrategy = spec.UpdateStrategy, appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
		others := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{nodeIs(corev1.NodeSelectorOpNotIn, node)}}
		spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: others}}
	})
	back = func(ctx context.Context) {
		a.changeAgents(ctx, func(spec *appsv1.DaemonSetSpec) { spec.UpdateStrategy, spec.Template.Spec.Affinity = strategy, nil })
		eventually(ctx, podLimit, "the agent of "+node.Name(), func(ctx context.Context) {
			must(isReady(a.agentPod(ctx, node)), "it is not Ready")
		})
	}
	a.after("let the agent of "+node.Name()+" come back", back)
	eventually(ctx, podLimit, "the end of the agent of "+node.Name(), func(context.Context) {
		must(len(value(node.Processes(agentProgram))) == 0, "it runs")
	})
	return back
}

// changeAgents changes the DaemonSet of the agents.
func (a *act) changeAgents(ctx context.Context, change func(*appsv1.DaemonSetSpec)) {
	set := &appsv1.DaemonSet{}
	did(a.api.Get(ctx, client.ObjectKey{Namespace: cluster.FencelineNamespace, Name: "fenceline-agent"}, set), "change how agents are run")
	before := set.DeepCopy()
	change(&set.Spec)
	did(a.api.Patch(ctx, set, client.MergeFrom(before)), "change how agents are run")
}

const (
	pluginFile = "/opt/cni/bin/fenceline"
	// newPluginDir moves the plugin directory away and makes a new one without our plugin, as an
	// upgrade by hand does.
	newPluginDir = `rm -rf /opt/cni/old && cp -a /opt/cni/bin /opt/cni/new && rm /opt/cni/new/fenceline && mv /opt/cni/bin /opt/cni/old && mv -T /opt/cni/new /opt/cni/bin`
)

// filesComeBack: an agent puts the plugin and the network configuration back, even if their
// directory was replaced. An event of the node reports it.
func (a *act) filesComeBack(ctx context.Context, node *cluster.Node) {
	for _, row := range []struct{ file, reason string }{{pluginFile, "PluginRestored"}, {conflistFile, "NetworkRestored"}} {
		a.isPutBack(ctx, node, "rm "+row.file, row.file)
		event := a.eventOf(ctx, "Node", node.Name(), row.reason, "was changed or removed, and the agent put it back")
		a.story.Say("Event of %s: %q", node.Name(), event.Message)
	}
	a.isPutBack(ctx, node, newPluginDir, pluginFile)
	a.story.Say("The directory of the plugins is another one, and the plugin is in it again.")
	eventually(ctx, statusLimit, node.Name()+" and its agent Ready", func(ctx context.Context) {
		must(isReady(a.agentPod(ctx, node)), "the agent is not Ready")
		object := &corev1.Node{}
		check(a.api.Get(ctx, client.ObjectKey{Name: node.Name()}, object))
		check(isNodeReady(object))
	})
}

// isPutBack has a script remove a file of a node, and waits until the agent has installed it again.
func (a *act) isPutBack(ctx context.Context, node *cluster.Node, remove, file string) {
	value(node.Exec(ctx, "sh", "-c", remove))
	eventually(ctx, statusLimit, file+" on "+node.Name(), func(ctx context.Context) { value(node.Exec(ctx, "test", "-s", file)) })
}

// markOfReader is an annotation of a Node that marks a position in its changes for the reader.
const markOfReader = "scenario/mark"

// readiness reads every change of a node from one resourceVersion on, without a gap. Not safe for concurrent use.
type readiness struct {
	*act
	node    *cluster.Node
	changes watch.Interface
}

// readinessOf begins to read once the node is Ready. If the kubelet has noticed a removed file, its
// next STATUS request reports that.
func (a *act) readinessOf(ctx context.Context, node *cluster.Node) *readiness {
	object := &corev1.Node{}
	eventually(ctx, statusLimit, "Ready", func(ctx context.Context) {
		did(a.api.Get(ctx, client.ObjectKey{Name: node.Name()}, object), "read node %s", node.Name())
		check(isNodeReady(object))
	})
	w, err := a.api.Watch(context.WithoutCancel(ctx), &corev1.NodeList{}, &client.ListOptions{
		Raw: &metav1.ListOptions{FieldSelector: "metadata.name=" + node.Name(), ResourceVersion: object.ResourceVersion},
	})
	did(err, "watch node %s", node.Name())
	r := &readiness{act: a, node: node, changes: w}
	a.after("stop the watch of node "+node.Name(), func(ctx context.Context) { w.Stop(); r.mark(ctx, nil) })
	return r
}

// stayed fails if the node was not Ready in a change since the last one that was read.
func (r *readiness) stayed(ctx context.Context) {
	text := time.Now().Format(time.RFC3339Nano)
	r.mark(ctx, &text)
	var left error
	r.until(ctx, eventLimit, "the mark "+text, func(n *corev1.Node) bool {
		if left == nil {
			left = isNodeReady(n)
		}
		return n.Annotations[markOfReader] == text
	})
	check(left)
}

// mark sets the mark, or takes it away.
func (r *readiness) mark(ctx context.Context, text *string) {
	patch := value(json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{markOfReader: text}}}))
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.node.Name()}}
	did(r.api.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)), "mark node %s", r.node.Name())
}

// until reads on to the first change that matches.
func (r *readiness) until(ctx context.Context, limit time.Duration, what string, match func(*corev1.Node) bool) *corev1.Node {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last *corev1.Node
	for {
		select {
		case <-ctx.Done():
			fail("waited %s for %s of node %s; the last change that was read is %v", limit, what, r.node.Name(), last)
		case event, ok := <-r.changes.ResultChan():
			n, isNode := event.Object.(*corev1.Node)
			must(ok && isNode, "wait for %s of node %s: the watch has ended: %v", what, r.node.Name(), event.Object)
			if last = n; match(n) {
				return n
			}
		}
	}
}

// isNodeReady returns an error with the condition unless the node is Ready.
func isNodeReady(n *corev1.Node) error {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
		if c.Type == corev1.NodeReady {
			return fmt.Errorf("node %s is Ready=%s at resourceVersion %s: %s", n.Name, c.Status, n.ResourceVersion, c.Message)
		}
	}
	return fmt.Errorf("node %s has no condition Ready at resourceVersion %s", n.Name, n.ResourceVersion)
}
