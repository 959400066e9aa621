// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/images"
)

// Networks of playMoveWide: "old" has moved, "dual" has one range of each family.
var (
	dual4 = netip.MustParsePrefix("10.80.0.0/24")
	dual6 = netip.MustParsePrefix("fd80::/112")
)

// movedPod is a pod that runs through a move, with its addresses of the other IPAM.
type movedPod struct {
	*cluster.Pod
	old, dual []netip.Addr
}

// playMoveWide moves two networks of another IPAM in, under 30 pods and a StatefulSet. Some pods are on both networks, pods
// start and end meanwhile, and one node is cut off from management.
func playMoveWide(from otherIPAM) func(context.Context, *act) {
	return func(ctx context.Context, a *act) { a.movesWide(ctx, from) }
}

func (a *act) movesWide(ctx context.Context, from otherIPAM) {
	// Two pods end, one while network old moves in again, and one after that.
	const pods, early, ended = 30, "old-10", "old-1"
	move := func(step, network string) string {
		return a.asThePageSays(ctx, "move-in "+step, from.name, a.namespace+"/"+network)
	}
	a.installMultus(ctx, cluster.Multus{})
	from.install(ctx, a)
	a.makePool(ctx, pods+20, nil)
	networks := map[string][]netip.Prefix{"old": {moved}, "dual": {dual4, dual6}}
	for name, ranges := range networks {
		for _, pool := range poolNames(name, ranges) {
			a.after("remove pool "+pool, func(ctx context.Context) { a.removePool(ctx, pool) })
		}
		a.definePlugins(ctx, a.namespace, name, from.network(ctx, a, name, ranges...)...)
	}
	before := a.definitionOf(ctx)
	victim := a.victim(ctx)
	on := func(i int) *cluster.Node {
		if from.onOne {
			return victim
		}
		return a.Nodes()[i%len(a.Nodes())]
	}
	shapes := [][]string{{"old"}, {"dual"}, {"old", "dual"}}
	for i := range pods {
		a.startPod(ctx, fmt.Sprintf("old-%d", i), on(i), attach(shapes[i/len(a.Nodes())%len(shapes)]...))
	}
	template := a.template(selector().MatchLabels)
	template.Annotations = map[string]string{annotationNetworks: "old"}
	template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: on(0).Name()}
	did(a.api.Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: workload},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Selector: selector(), Template: template},
	}), "make a StatefulSet")
	a.running(ctx, pods+1, func(p *corev1.Pod) bool { return p.Annotations[annotationNetworks] != "" })

	host4 := a.foreignHost("client", netip.PrefixFrom(netip.MustParseAddr("10.79.0.250"), moved.Bits()))
	hostDual := a.foreignHost("client2", netip.PrefixFrom(netip.MustParseAddr("10.80.0.250"), dual4.Bits()))
	move("plan", "old")
	move("plan", "dual")
	// Meanwhile the other IPAM gives and takes.
	gone := a.pod(ctx, "old-0")
	a.deletePod(ctx, gone, false)
	eventually(ctx, podLimit, "the end of pod "+gone.Name, func(ctx context.Context) { // its node may be the one that is cut off
		a.isGone(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: gone.Name}}, "its containers")
	})
	a.runPod(ctx, "late", on(1), attach("old", "dual"))
	all := a.movedPods(ctx, pods+1)
	running := a.record()
	var stay4, stayDual []netip.Addr
	for _, p := range all {
		if p.Name == early || p.Name == ended {
			continue
		}
		stay4 = append(stay4, p.old...)
		stayDual = append(stayDual, p.dual...)
	}
	stayDual = slices.DeleteFunc(stayDual, func(addr netip.Addr) bool { return !addr.Is4() })
	pings4, pingsDual := a.ping(host4, stay4...), a.ping(hostDual, stayDual...)
	pings4.waitFor(ctx, 20)
	pingsDual.waitFor(ctx, 20)
	onOld, onDual := 0, 0
	for _, p := range all {
		onOld += len(p.old)
		onDual += len(p.dual)
	}
	a.story.Say("%d pods run with %d addresses of network old and %d of network dual, and hosts ping them.", len(all), onOld, onDual)

	a.healLater(victim)
	check(victim.CutManagement())
	cut := time.Now()
	begun := cut
	if from.onOne { // nobody knows what its IPAM gives
		said, err := a.Kubectl(ctx, "fenceline", "move-in", "start", from.name, a.namespace+"/old")
		must(err != nil && strings.Contains(said+err.Error(), "on node "+victim.Name()+" are not known"), "start was to be refused while %s is away: %s, %v", victim.Name(), said, err)
		check(victim.HealManagement())
		a.story.Say("While %s was cut off, nothing began.", victim.Name())
		eventually(ctx, podLimit, "the start", func(ctx context.Context) { // its agent is Ready some seconds later
			begun = time.Now()
			a.story.Show("kubectl fenceline move-in start "+from.name+" "+a.namespace+"/old", move("start", "old"))
		})
		a.adoptedAre(ctx, from, a.namespace+"/old", onOld, 0)
	} else {
		a.story.Show("kubectl fenceline move-in start "+from.name+" "+a.namespace+"/old", move("start", "old"))
		a.adoptsLater(ctx, from, all, victim)
	}
	a.story.Say("All %d addresses of network old are adopted %s after the start.", onOld, round(time.Since(begun)))

	begunDual := time.Now()
	move("start", "dual")
	a.adoptedAre(ctx, from, a.namespace+"/dual", onDual, 0)
	adopted := time.Now()
	a.story.Say("Network dual: %d addresses in both families are adopted %s after the start.", onDual, round(time.Since(begunDual)))

	if from.onOne {
		check(victim.CutManagement())
		a.story.Show("kubectl fenceline move-in back "+from.name+" "+a.namespace+"/old", move("back", "old"))
		must(a.definitionOf(ctx) != before, "all has gone back while %s is away", victim.Name())
		check(victim.HealManagement())
	}
	eventually(ctx, podLimit, "the way back", func(ctx context.Context) {
		said := move("back", "old")
		must(a.definitionOf(ctx) == before, "the definition is not as before: %s: %s", a.definitionOf(ctx), said)
	})
	// The other IPAM gives and takes while the network moves in again.
	for i := range a.Nodes() {
		a.startPod(ctx, fmt.Sprintf("race-%d", i), on(i), attach("old"))
	}
	a.deletePod(ctx, &cluster.Pod{Namespace: a.namespace, Name: early}, false)
	move("start", "old")
	all = slices.DeleteFunc(all, func(p movedPod) bool { return p.Name == early })
	a.allAreBound(ctx, from, len(all)+len(a.Nodes()))
	a.story.Say("Network old went back and in again, while %d pods started on it and one ended.", len(a.Nodes()))
	for name, ranges := range networks {
		if from.beforeFinish != nil {
			from.beforeFinish(ctx, a, poolNames(name, ranges))
		}
		move("finish", name)
	}
	must(a.markedFiles(ctx) == "", "files of the move are left: %s", a.markedFiles(ctx))
	var values []string
	if !from.onOne { // whose agents lose the value
		values = []string{hostLocalValue}
	}
	check(errors.Join(a.InstallChart(ctx, images.DefaultVersion, values...), a.WaitReady(ctx)))
	a.story.Say("An upgrade has started each agent anew.")
	a.deletePod(ctx, &cluster.Pod{Namespace: a.namespace, Name: ended}, false)
	for _, p := range all {
		if p.Name == ended {
			for _, addr := range slices.Concat(p.old, p.dual) {
				a.comesFree(ctx, addr)
			}
		}
	}
	pings4.noneLost(cut)
	pingsDual.noneLost(cut)
	for _, p := range all {
		frames := running.Frames()
		if len(p.old) > 0 && len(p.dual) > 0 { // before, its kernel answered for each address by both interfaces
			frames = capture.After(frames, adopted)
		}
		for _, addr := range slices.Concat(p.old, p.dual) {
			if addr.Is4() {
				speakers := capture.Speakers(frames, addr)
				must(len(speakers) == 1, "%v speak for %s of pod %s", speakers, addr, p.Name)
			}
		}
	}
	a.story.Say("Both moves are finished. No ping was lost, and each address has had one speaker.")
	a.keepsNames(ctx, all)
	a.fencesAnAdoptedZombie(ctx, all, victim, host4)
	if from.takesBack {
		a.movesOut(ctx, from, len(all)-3+len(a.Nodes()), host4)
	}
}

// adoptsLater: the pods of network old are adopted, those of a node that is cut off once it is back.
func (a *act) adoptsLater(ctx context.Context, from otherIPAM, all []movedPod, victim *cluster.Node) {
	network, others, away := a.namespace+"/old", 0, 0
	for _, p := range all {
		if p.Node.Name() == victim.Name() {
			away += len(p.old)
		} else {
			others += len(p.old)
		}
	}
	a.adoptedAre(ctx, from, network, others, away)
	a.story.Show("kubectl fenceline move-in status "+from.name+" "+network, a.asThePageSays(ctx, "move-in status", from.name, network))
	said, err := a.Kubectl(ctx, "fenceline", "move-in", "finish", from.name, network)
	must(err != nil, "finish was to be refused while addresses are held: %s", said)
	check(victim.HealManagement())
	healed := time.Now()
	a.adoptedAre(ctx, from, network, others+away, 0)
	a.story.Say("%s after %s is back, its %d addresses are adopted too.", round(time.Since(healed)), victim.Name(), away)
}

// allAreBound waits until each pod of network old has a lease of its address, and no address is held.
func (a *act) allAreBound(ctx context.Context, from otherIPAM, pods int) {
	eventually(ctx, podLimit, "the leases of all pods", func(ctx context.Context) {
		said := value(a.Kubectl(ctx, "fenceline", "move-in", "status", from.name, a.namespace+"/old"))
		must(strings.Contains(said, ", held: 0, in conflict: 0, "), "%s", said)
		for _, p := range a.movedPods(ctx, pods) {
			for _, addr := range p.old {
				a.boundTo(ctx, addr, p.UID)
			}
		}
	})
}

// movedPods returns the pods that the other IPAM has given addresses.
func (a *act) movedPods(ctx context.Context, count int) (all []movedPod) {
	for _, p := range a.running(ctx, count, func(p *corev1.Pod) bool { return p.Annotations[annotationNetworks] != "" }) {
		m := movedPod{Pod: p}
		for _, i := range a.interfaces(ctx, p)[1:] {
			switch i.network {
			case a.namespace + "/old":
				m.old = i.addrs
			case a.namespace + "/dual":
				must(len(i.addrs) == 2, "%s of pod %s has %v, not one address of each family", i.name, p.Name, i.addrs)
				m.dual = i.addrs
			}
		}
		all = append(all, m)
	}
	return all
}

// keepsNames: an adopted pod of a StatefulSet comes back with its address.
func (a *act) keepsNames(ctx context.Context, all []movedPod) {
	i := slices.IndexFunc(all, func(p movedPod) bool { return strings.HasPrefix(p.Name, workload+"-") })
	must(i >= 0, "no pod of the StatefulSet is among them")
	was := all[i]
	a.deletePod(ctx, was.Pod, false)
	next := a.running(ctx, 1, func(p *corev1.Pod) bool { return p.Name == was.Name && string(p.UID) != was.UID })[0]
	addr := a.interfaces(ctx, next)[1].addr
	must(addr == was.old[0], "pod %s had %s and has %s", next.Name, was.old[0], addr)
	a.story.Say("Pod %s of the StatefulSet was replaced, and has %s again.", next.Name, addr)
}

// fencesAnAdoptedZombie: an adopted pod that runs on behind a cut management cable is silenced before its address is given.
func (a *act) fencesAnAdoptedZombie(ctx context.Context, all []movedPod, node *cluster.Node, host *cluster.Host) {
	i := slices.IndexFunc(all, func(p movedPod) bool {
		return p.Node.Name() == node.Name() && len(p.old) > 0 && strings.HasPrefix(p.Name, "old-") && p.Name != "old-1"
	})
	must(i >= 0, "no moved pod is on %s", node.Name())
	zombie := all[i]
	check(node.CutManagement())
	value(host.Exec(ctx, "arping", "-q", "-f", "-c", "3", "-w", "3", "-I", "eth0", zombie.old[0].String()))
	a.deletePod(ctx, zombie.Pod, true)
	a.comesFree(ctx, zombie.old[0])
	_, err := host.Exec(ctx, "arping", "-q", "-f", "-c", "3", "-w", "3", "-I", "eth0", zombie.old[0].String())
	must(err != nil, "the zombie still answers for %s", zombie.old[0])
	check(node.HealManagement())
	a.story.Say("Pod %s, adopted, ran on behind a cut cable after it was deleted by force. It is silent, and its %s is free.", zombie.Name, zombie.old[0])
}

// movesOut: the adopted pods of network old keep address and traffic when it goes back to the other IPAM for good.
func (a *act) movesOut(ctx context.Context, to otherIPAM, count int, host *cluster.Host) {
	move := func(step string) string {
		return a.asThePageSays(ctx, "move-out "+step, to.name, a.namespace+"/old")
	}
	did(a.api.Delete(ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: workload}}), "delete the StatefulSet")
	var stay []netip.Addr
	for _, p := range a.movedPods(ctx, count) {
		stay = append(stay, p.old...)
	}
	pings := a.ping(host, stay...)
	pings.waitFor(ctx, 20)
	begun := time.Now()
	move("plan")
	a.story.Show("kubectl fenceline move-out start "+to.name+" "+a.namespace+"/old", move("start"))
	for _, addr := range stay {
		a.comesFree(ctx, addr)
	}
	a.story.Say("%d pods are with %s %s after the plan.", len(stay), to.name, round(time.Since(begun)))
	eventually(ctx, podLimit, "the end of the move", func(ctx context.Context) {
		move("start")
		move("finish")
	})
	next := a.runPod(ctx, "next", a.Node(1), attach("old"))
	given := a.movedAddress(ctx, next)
	must(!slices.Contains(stay, given), "%s gave %s, which a pod has", to.name, given)
	pings.noneLost(begun)
	a.story.Say("The move out is finished, no ping was lost, and %s gave %s to a new pod.", to.name, given)
}
