// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
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
func (w *whole) outlives(ctx context.Context) {
	load := w.hold()
	b := w.services["b"]
	for _, c := range []struct {
		count int
		from  place
		to    netip.AddrPort
	}{
		{15, w.at[w.d], netip.AddrPortFrom(b.addrs[0], appPort)},
		{10, w.at[w.d], netip.AddrPortFrom(b.addrs[1], appPort)},
		{10, w.at[w.d], netip.AddrPortFrom(w.services["a"].addrs[0], appPort)},
		{10, w.outside, netip.AddrPortFrom(nodeAddr(w.first, 0), b.tcp)},
		{5, placeOfNode(w.first), netip.AddrPortFrom(w.a.IPs[0], appPort)},
	} {
		load.open(ctx, c.count, c.from, c.to)
	}
	own := w.ping(&cluster.Host{Namespace: w.first.Namespace()}, addressOf(w.a), addressOf(w.d))
	far := w.ping(&cluster.Host{Namespace: w.outside.ns}, addressOf(w.a), addressOf(w.b), addressOf(w.c), addressOf(w.d))
	load.unbroken(ctx)
	began := time.Now()
	killed := []part{{"the agents of all nodes", true, w.restartAgents}, daemon(w.first, machine.Kubelet), daemon(w.first, w.first.Config.Runtime)}
	for _, part := range append(killed, w.replaced()...) {
		during(func() { part.restart(ctx) }, "%s", part.name)
		during(func() { load.unbroken(ctx) }, "after %s", part.name)
	}
	for _, pings := range []*pinger{own, far} {
		pings.waitFor(ctx, 20)
		pings.noneLost(began)
	}
	w.story.Say("All agents are killed, and kubelet and containerd of %s. Fenceline is upgraded and rolled back. Of %d connections none broke, and of %d pings none was lost.",
		w.first.Name(), load.count, len(own.all())+len(far.all()))
}

// replaced upgrades Fenceline and rolls it back, as a person does.
func (w *whole) replaced() []part {
	return []part{
		{"the upgrade of Fenceline", true, func(ctx context.Context) {
			w.after("install Fenceline as before", func(ctx context.Context) {
				if attempt(func() { w.agentsAre(ctx, images.DefaultVersion) }) != nil {
					w.installAgain(ctx)
				}
			})
			check(w.RetagFenceline(ctx, nextVersion, "agent.maxUnavailable=100%"))
			w.agentsAre(ctx, nextVersion)
		}},
		{"the rollback of Fenceline", true, func(ctx context.Context) {
			value(w.Helm(ctx, "rollback", "fenceline", "--namespace", cluster.FencelineNamespace, "--wait"))
			w.agentsAre(ctx, images.DefaultVersion)
		}},
	}
}

// agentsAre fails unless each node has an agent of that version.
func (w *whole) agentsAre(ctx context.Context, version string) {
	for _, n := range w.Nodes() {
		image := w.agentPod(ctx, n).Spec.Containers[0].Image
		must(strings.HasSuffix(image, ":"+version), "the agent of %s is %s, not of version %s", n.Name(), image, version)
	}
}

// restartAgents kills the agents of all nodes and waits until they are Ready again.
func (w *whole) restartAgents(ctx context.Context) {
	before := w.agentRestarts(ctx)
	for _, n := range w.Nodes() {
		check(n.Kill(ctx, agentProgram))
	}
	eventually(ctx, podLimit, "the restart of all agents", func(ctx context.Context) {
		now := w.agentRestarts(ctx)
		for name, restarts := range before {
			must(now[name] > restarts, "agent %s is not Ready again", name)
		}
	})
}

// agentRestarts returns the restarts of the agents that are Ready, by their pods.
func (w *whole) agentRestarts(ctx context.Context) map[string]int32 {
	restarts := map[string]int32{}
	for _, p := range w.ours(ctx, "agent") {
		if isReady(&p) {
			restarts[p.Name] = p.Status.ContainerStatuses[0].RestartCount
		}
	}
	return restarts
}

// boots powers a node off and on. Its pods start again, with all ways, and nothing of before is left.
func (w *whole) boots(ctx context.Context) {
	w.after("power "+w.second.Name()+" on", func(ctx context.Context) {
		if w.second.Machine.Init.Alive() {
			check(w.second.HealUnderlay())
			return
		}
		check(errors.Join(w.second.PowerOn(ctx), w.WaitReady(ctx)))
	})
	w.isSilenced("behind a cut cable", w.second.CutUnderlay)
	check(w.second.HealUnderlay())
	eventually(ctx, pathLimit, "pod b behind the healed cable", func(ctx context.Context) { check(w.outside.ping(addressOf(w.b))) })
	// A frozen pod does nothing at its end, as when the power fails.
	off := func() error { return errors.Join(w.b.Freeze(ctx), w.second.PowerOff(ctx)) }
	w.isSilenced("on a node without power", off)
	old := w.b.UID
	check(w.second.PowerOn(ctx))
	eventually(ctx, podLimit, "pod b to run again", func(ctx context.Context) {
		pod := &corev1.Pod{}
		check(w.api.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "b"}, pod))
		statuses := pod.Status.ContainerStatuses
		must(string(pod.UID) == old && isReady(pod) && len(statuses) > 0 && statuses[0].RestartCount > 0, "it is %s", names([]corev1.Pod{*pod}))
	})
	w.awaitPods(ctx)
	w.openPlaces()
	during(func() { w.reaches(ctx) }, "after the boot of %s", w.second.Name())
	// A sandbox of before the boot may be on its way out.
	eventually(ctx, eventLimit, "host links of living pods only on "+w.second.Name(), w.isSwept)
}

// isSilenced judges that pod b answers the outside host before a fault of its node, and not after it.
func (w *whole) isSilenced(where string, fault func() error) {
	check(w.outside.ping(addressOf(w.b)))
	check(fault())
	must(w.outside.ping(addressOf(w.b)) != nil, "pod b answers %s", where)
}

// isSwept fails unless each host link of the node that was off leads to addresses of one living pod.
func (w *whole) isSwept(ctx context.Context) {
	pods, node := &corev1.PodList{}, w.second
	check(w.api.List(ctx, pods, client.MatchingFields{"spec.nodeName": node.Name()}))
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
	links := value(node.Exec(ctx, "ip", "-brief", "link"))
	got := strings.Count("\n"+links, "\n"+hostlink.NodePrefix)
	must(got == count, "%s has %d host links for %d pods:\n%s", node.Name(), got, count, links)
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(value(node.Exec(ctx, "ip", family, "route"))) {
			dst, _, _ := strings.Cut(line, " ")
			toPod := strings.Contains(line, " dev "+hostlink.NodePrefix) && !strings.HasPrefix(line, "fe80::")
			must(!toPod || living[dst], "%s has a route to a pod that does not exist: %s", node.Name(), line)
		}
	}
	w.story.Say("%s was powered off and on: each of its %d host links and their routes belong to a living pod.", node.Name(), count)
}
