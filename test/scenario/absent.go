// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// statusLimit is how long a kubelet may take to ask its runtime twice, and to
	// tell the API server. It asks every five seconds.
	statusLimit = 60 * time.Second
	// statusFile is where the plugin keeps since when the agent is away.
	statusFile = "/run/fenceline/agent.sock.status"
	// conflistFile is what the agent writes anew at its start.
	conflistFile = "/etc/cni/net.d/90-fenceline.conflist"
	// noGrace makes it a network whose STATUS tells of an absent agent at once.
	noGrace = `s/"type": "fenceline"/"type": "fenceline", "status_grace": "0s"/`
)

// playAbsent: the agent puts back what somebody removes of its files. A node whose agent is away for
// less than ipam.status_grace stays Ready. Afterwards it is not Ready and says what is missing,
// until the agent is back. Its pods notice neither.
func playAbsent(ctx context.Context, a *act) error {
	check(a.makePool(ctx, 2, nil))
	node := value(a.victim(ctx))
	pod := value(a.runPod(ctx, "web", node, func(p *corev1.Pod) {
		template := corev1.PodTemplateSpec{Spec: p.Spec}
		staying(&template)
		p.Spec = template.Spec
	}))
	w := value(a.watch(addressOf(pod)))
	check(w.pings.waitFor(ctx, 20, time.Now()))
	began := time.Now()
	check(a.filesComeBack(ctx, node))
	ready := value(a.readinessOf(ctx, node))
	back := value(a.keepAgentAway(ctx, node))
	a.story.Say("The agent of %s has ended.", node.Name())
	check(ready.outlastsAbsence(ctx))
	check(ready.tellsOfAbsence(ctx, back))
	check(w.pings.waitFor(ctx, 20, time.Now()))
	if lost := lostSince(w.pings.all(), began, time.Now()); lost > 0 {
		return fmt.Errorf("%d pings to pod %s were lost", lost, pod.Name)
	}
	a.story.Say("Pod %s answered all %d pings.", pod.Name, len(w.pings.all()))
	return nil
}

// outlastsAbsence: the runtime asks for STATUS without an agent, twice, and all the
// while the node is Ready.
func (r *readiness) outlastsAbsence(ctx context.Context) error {
	gone := time.Now()
	err := eventually(ctx, statusLimit, "a STATUS without an agent", func(ctx context.Context) error {
		output, err := r.node.Exec(ctx, "cat", statusFile)
		if err == nil && !strings.Contains(output, "failsSince") {
			err = fmt.Errorf("the plugin remembers %s", output)
		}
		return err
	})
	if err == nil {
		err = r.isAskedAgain(ctx)
	}
	if err := errors.Join(err, r.stayed(ctx)); err != nil {
		return fmt.Errorf("the agent was away for %s: %w", round(time.Since(gone)), err)
	}
	r.figures.add("the node stayed Ready without an agent", time.Since(gone))
	r.story.Say("The runtime has called STATUS twice since, and each change of the Node says Ready.")
	return nil
}

// isAskedAgain waits for one more STATUS: the plugin reads its memory each time.
func (r *readiness) isAskedAgain(ctx context.Context) error {
	const unread = "0"
	if output, err := r.node.Exec(ctx, "touch", "-a", "-d", "@"+unread, statusFile); err != nil {
		return fmt.Errorf("forget when the plugin read last: %w: %s", err, output)
	}
	return eventually(ctx, statusLimit, "another STATUS", func(ctx context.Context) error {
		output, err := r.node.Exec(ctx, "stat", "-c", "%X", statusFile)
		if err == nil && strings.TrimSpace(output) == unread {
			err = errors.New("the plugin has not been called")
		}
		return err
	})
}

// tellsOfAbsence: without a grace the node is not Ready and says why, and is
// Ready with the agent's return, which brings the grace back.
func (r *readiness) tellsOfAbsence(ctx context.Context, back func(context.Context) error) error {
	if output, err := r.node.Exec(ctx, "sed", "-i", noGrace, conflistFile); err != nil {
		return fmt.Errorf("take the grace away: %w: %s", err, output)
	}
	over := time.Now()
	n := value(r.until(ctx, statusLimit, "NotReady", func(n *corev1.Node) bool { return isNodeReady(n) != nil }))
	told := isNodeReady(n)
	for _, words := range []string{"NetworkReady=false", "no answer from the agent on /run/fenceline/agent.sock"} {
		if !strings.Contains(told.Error(), words) {
			return fmt.Errorf("the condition does not say %q: %w", words, told)
		}
	}
	r.figures.add("the node reports the missing agent, from the end of the grace", time.Since(over))
	r.story.Say("Without status_grace: %s", told)
	check(back(ctx))
	returned := time.Now()
	value(r.until(ctx, statusLimit, "Ready", func(n *corev1.Node) bool { return isNodeReady(n) == nil }))
	r.figures.add("the node is Ready, from the agent's return", time.Since(returned))
	r.story.Say("The agent is back, and the node is Ready.")
	return nil
}

// keepAgentAway ends the agent of a node, and returns what brings it back. The
// template of the other agents is then what it was, so they stay.
func (a *act) keepAgentAway(ctx context.Context, node *cluster.Node) (back func(context.Context) error, err error) {
	var strategy appsv1.DaemonSetUpdateStrategy
	check(a.changeAgents(ctx, func(spec *appsv1.DaemonSetSpec) {
		strategy, spec.UpdateStrategy = spec.UpdateStrategy, appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
		spec.Template.Spec.Affinity = elsewhere(node)
	}))
	back = func(ctx context.Context) error {
		err := a.changeAgents(ctx, func(spec *appsv1.DaemonSetSpec) {
			spec.UpdateStrategy, spec.Template.Spec.Affinity = strategy, nil
		})
		if err != nil {
			return err
		}
		return eventually(ctx, podLimit, "the agent of "+node.Name(), func(ctx context.Context) error {
			pod, err := a.agentPod(ctx, node)
			if err == nil && !isReady(pod) {
				err = errors.New("it is not Ready")
			}
			return err
		})
	}
	a.after("let the agent of "+node.Name()+" come back", back)
	return back, eventually(ctx, podLimit, "the end of the agent of "+node.Name(), func(context.Context) error {
		procs, err := node.Processes(agentProgram)
		if err == nil && len(procs) > 0 {
			err = errors.New("it runs")
		}
		return err
	})
}

// elsewhere keeps pods off a node.
func elsewhere(node *cluster.Node) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node.Name()},
			}},
		}}},
	}}
}

// changeAgents changes how agents are run.
func (a *act) changeAgents(ctx context.Context, change func(*appsv1.DaemonSetSpec)) error {
	set := &appsv1.DaemonSet{}
	if err := a.api.Get(ctx, client.ObjectKey{Namespace: cluster.FencelineNamespace, Name: "fenceline-agent"}, set); err != nil {
		return fmt.Errorf("change how agents are run: %w", err)
	}
	before := set.DeepCopy()
	change(&set.Spec)
	if err := a.api.Patch(ctx, set, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("change how agents are run: %w", err)
	}
	return nil
}
