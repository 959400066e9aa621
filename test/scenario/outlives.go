// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/machine"
)

// nextVersion is the version to which Fenceline is upgraded. Its code is the same.
const nextVersion = images.DefaultVersion + "-next"

// outlives kills the agents, and kubelet and containerd of a node, upgrades Fenceline and rolls it back,
// all under steady connections and pings.
func (w *whole) outlives(ctx context.Context) error {
	load := w.hold()
	b := w.services["b"]
	for _, c := range []struct {
		count int
		from  place
		to    netip.AddrPort
	}{
		{15, w.atD, netip.AddrPortFrom(b.addrs[0], appPort)},
		{10, w.atD, netip.AddrPortFrom(b.addrs[1], appPort)},
		{10, w.atD, netip.AddrPortFrom(w.services["a"].addrs[0], appPort)},
		{10, w.outside, netip.AddrPortFrom(nodeAddr(w.first, 0), b.tcp)},
		{5, placeOfNode(w.first), netip.AddrPortFrom(w.a.IPs[0], appPort)},
	} {
		check(load.open(ctx, c.count, c.from, c.to))
	}
	own := value(w.ping(&cluster.Host{Namespace: w.first.Namespace()}, addressOf(w.a), addressOf(w.d)))
	far := value(w.ping(&cluster.Host{Namespace: w.outside.ns}, addressOf(w.a), addressOf(w.b), addressOf(w.c), addressOf(w.d)))
	check(load.unbroken(ctx))
	began := time.Now()
	for _, part := range append(w.killed(), w.replaced()...) {
		if err := part.restart(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		if err := load.unbroken(ctx); err != nil {
			return fmt.Errorf("after %s: %w", part.name, err)
		}
	}
	for _, pings := range []*pinger{own, far} {
		check(pings.waitFor(ctx, 20, time.Now()))
		if lost := lostSince(pings.all(), began, time.Now()); lost > 0 {
			return fmt.Errorf("%d pings were lost while agents, kubelet and containerd were killed, and agents were replaced", lost)
		}
	}
	w.figures.add("connections through Services that stayed, and their echoes", fmt.Sprintf("%d, %d", load.count, load.echoes.Load()))
	w.figures.add("pings without a loss meanwhile", len(own.all())+len(far.all()))
	w.story.Say("All agents are killed, and kubelet and containerd of %s. Fenceline is upgraded and rolled back. Of %d connections none broke, and of %d pings none was lost.",
		w.first.Name(), load.count, len(own.all())+len(far.all()))
	return nil
}

func (w *whole) killed() []part {
	daemon := func(name string) part {
		return part{"the kill of " + name, false, func(ctx context.Context) error {
			return errors.Join(w.first.Kill(ctx, name), w.first.StartDaemon(ctx, name))
		}}
	}
	return []part{{"the kill of all agents", true, w.restartAgents}, daemon(machine.Kubelet), daemon(machine.Containerd)}
}

// replaced upgrades Fenceline and rolls it back, as a person does.
func (w *whole) replaced() []part {
	return []part{
		{"the upgrade of Fenceline", true, func(ctx context.Context) error {
			w.after("install Fenceline as before", w.isInstalledAsBefore)
			started := time.Now()
			if err := w.RetagFenceline(ctx, nextVersion, "agent.maxUnavailable=100%"); err != nil {
				return err
			}
			w.figures.add("upgrade of Fenceline", time.Since(started))
			return w.agentsAre(ctx, nextVersion)
		}},
		{"the rollback of Fenceline", true, func(ctx context.Context) error {
			started := time.Now()
			if _, err := w.Helm(ctx, "rollback", "fenceline", "--namespace", cluster.FencelineNamespace, "--wait"); err != nil {
				return err
			}
			w.figures.add("rollback of Fenceline", time.Since(started))
			return w.agentsAre(ctx, images.DefaultVersion)
		}},
	}
}

// isInstalledAsBefore installs the default version, unless all agents have it.
func (w *whole) isInstalledAsBefore(ctx context.Context) error {
	if w.agentsAre(ctx, images.DefaultVersion) == nil {
		return nil
	}
	return errors.Join(w.InstallFenceline(ctx, images.DefaultVersion), w.WaitReady(ctx))
}

// agentsAre returns an error unless each node has an agent of that version.
func (w *whole) agentsAre(ctx context.Context, version string) error {
	for _, n := range w.Nodes() {
		pod, err := w.agentPod(ctx, n)
		if err != nil {
			return err
		}
		if image := pod.Spec.Containers[0].Image; !strings.HasSuffix(image, ":"+version) {
			return fmt.Errorf("the agent of %s is %s, not of version %s", n.Name(), image, version)
		}
	}
	return nil
}

// restartAgents kills the agents of all nodes and waits until they are Ready again.
func (w *whole) restartAgents(ctx context.Context) error {
	before, err := w.agentRestarts(ctx)
	if err != nil {
		return err
	}
	for _, n := range w.Nodes() {
		if err := n.Kill(ctx, agentProgram); err != nil {
			return err
		}
	}
	return eventually(ctx, podLimit, "the restart of all agents", func(ctx context.Context) error {
		now, err := w.agentRestarts(ctx)
		if err != nil {
			return err
		}
		for name, restarts := range before {
			if now[name] <= restarts {
				return fmt.Errorf("agent %s is not Ready again", name)
			}
		}
		return nil
	})
}

// agentRestarts returns the restarts of the agents that are Ready, by their pods.
func (w *whole) agentRestarts(ctx context.Context) (map[string]int32, error) {
	pods := &corev1.PodList{}
	err := w.api.List(ctx, pods, client.InNamespace(cluster.FencelineNamespace), client.MatchingLabels{"app.kubernetes.io/component": "agent"})
	if err != nil {
		return nil, fmt.Errorf("list the agents: %w", err)
	}
	restarts := map[string]int32{}
	for i := range pods.Items {
		if p := &pods.Items[i]; isReady(p) {
			restarts[p.Name] = p.Status.ContainerStatuses[0].RestartCount
		}
	}
	return restarts, nil
}

// boots powers a node off and on. Its pods start again, with all ways, and nothing of before is left.
func (w *whole) boots(ctx context.Context) error {
	w.after("power "+w.second.Name()+" on", func(ctx context.Context) error {
		if w.second.Machine.Init.Alive() {
			return w.second.HealUnderlay()
		}
		return errors.Join(w.second.PowerOn(ctx), w.WaitReady(ctx))
	})
	check(w.isSilenced(ctx, "behind a cut cable", w.second.CutUnderlay))
	check(w.second.HealUnderlay())
	check(eventually(ctx, pathLimit, "pod b behind the healed cable", func(ctx context.Context) error { return w.outside.ping(ctx, addressOf(w.b)) }))
	// No process has a say when the power goes, not even a frozen one.
	off := func() error { return errors.Join(w.b.Freeze(ctx), w.second.PowerOff(ctx)) }
	check(w.isSilenced(ctx, "on a node without power", off))
	started := time.Now()
	old := w.b.UID
	check(w.second.PowerOn(ctx))
	check(eventually(ctx, podLimit, "pod b to run again", func(ctx context.Context) error {
		pod := &corev1.Pod{}
		if err := w.api.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "b"}, pod); err != nil {
			return err
		}
		if string(pod.UID) != old || !isReady(pod) || len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].RestartCount == 0 {
			return fmt.Errorf("it is %s", names([]corev1.Pod{*pod}))
		}
		return nil
	}))
	check(w.awaitPods(ctx))
	w.figures.add("pods of a node Ready again, after its boot", time.Since(started))
	check(w.openPlaces())
	if err := w.reaches(ctx); err != nil {
		return fmt.Errorf("after the boot of %s: %w", w.second.Name(), err)
	}
	// A sandbox of before the boot may be on its way out.
	return eventually(ctx, 20*time.Second, "host links of living pods only on "+w.second.Name(), func(ctx context.Context) error {
		return w.isSwept(ctx, w.second)
	})
}

// isSilenced judges that pod b answers the outside host before a fault of its node, and not after it.
func (w *whole) isSilenced(ctx context.Context, where string, fault func() error) error {
	check(w.outside.ping(ctx, addressOf(w.b)))
	check(fault())
	if w.outside.ping(ctx, addressOf(w.b)) == nil {
		return fmt.Errorf("pod b answers %s", where)
	}
	return nil
}

// isSwept returns an error unless each host link of the node leads to addresses of one living pod.
func (w *whole) isSwept(ctx context.Context, node *cluster.Node) error {
	pods := &corev1.PodList{}
	if err := w.api.List(ctx, pods, client.MatchingFields{"spec.nodeName": node.Name()}); err != nil {
		return err
	}
	living := map[string]bool{}
	count := 0
	for _, p := range pods.Items {
		if p.Spec.HostNetwork {
			continue
		}
		count++
		for _, ip := range p.Status.PodIPs {
			living[ip.IP] = true
		}
	}
	links, err := node.Exec(ctx, "ip", "-brief", "link")
	if err != nil {
		return err
	}
	if got := strings.Count("\n"+links, "\n"+hostlink.NodePrefix); got != count {
		return fmt.Errorf("%s has %d host links for %d pods:\n%s", node.Name(), got, count, links)
	}
	for _, family := range []string{"-4", "-6"} {
		routes, err := node.Exec(ctx, "ip", family, "route")
		if err != nil {
			return err
		}
		for line := range strings.Lines(routes) {
			dst, _, _ := strings.Cut(line, " ")
			if strings.Contains(line, " dev "+hostlink.NodePrefix) && !strings.HasPrefix(line, "fe80::") && !living[dst] {
				return fmt.Errorf("%s has a route to a pod that does not exist: %s", node.Name(), line)
			}
		}
	}
	w.story.Say("%s was powered off and on: each of its %d host links and their routes belong to a living pod.", node.Name(), count)
	return nil
}
