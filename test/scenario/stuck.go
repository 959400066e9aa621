// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// ailment is a cause by which a pod survives its deletion on a working node.
type ailment struct {
	// name is the name of the pod, what a clause about it in the story.
	name, what string
	// force is set if the pod is deleted by force.
	force        bool
	args         []string
	befall, heal func(context.Context, *cluster.Pod) error
}

// ailments: the kubelet would send SIGKILL to the stubborn pod after two seconds, whatever its
// grace. So the shim, which would deliver it, is stopped.
func ailments() []ailment {
	stop := func(_ context.Context, p *cluster.Pod) error { return p.StopShim() }
	proceed := func(_ context.Context, p *cluster.Pod) error { return p.ContinueShim() }
	return []ailment{
		{
			name: "frozen", what: "its cgroup is frozen, so that not even SIGKILL ends it",
			befall: func(ctx context.Context, p *cluster.Pod) error { return p.Freeze(ctx) },
			heal:   func(ctx context.Context, p *cluster.Pod) error { return p.Thaw(ctx) },
		},
		{name: "shim", what: "its containerd-shim is stopped, so that containerd cannot end it", befall: stop, heal: proceed},
		{
			name: "stubborn", what: "its process ignores SIGTERM, its containerd-shim hangs, and it is deleted by force",
			force: true, args: []string{"serve", "-stubborn"}, befall: stop, heal: proceed,
		},
	}
}

// stuck is a pod that survives its deletion.
type stuck struct {
	*zombie
	ailment
	// next is the pod that has the address now.
	next *cluster.Pod
}

// playStuck: four pods of a node fill their pool, and three of them survive their deletion. Each of
// their addresses is taken in time, fenced at once, and given to another pod. The fourth pod is
// deleted normally, and is silent before its lease is gone. Meanwhile both controllers are replaced.
func playStuck(ctx context.Context, a *act) {
	all, ended := a.stageStuck(ctx)
	a.addController(ctx)
	for _, s := range all {
		a.story.Say("Pod %s has %s. Then %s.", s.pod.Name, s.addr, s.what)
		a.after("heal pod "+s.pod.Name, func(ctx context.Context) {
			if err := s.heal(ctx, s.pod); s.pod.Alive() {
				check(err)
			}
		})
		check(s.befall(ctx, s.pod))
	}
	var due []time.Time
	for _, s := range all {
		a.deletePod(ctx, s.pod, s.force)
		s.cut = time.Now()
		due = append(due, s.takenAfter(ctx))
	}
	leader := a.leader(ctx)
	a.rollOut(ctx, controllers(), 1)
	for _, s := range all {
		during(func() { s.answersARP(ctx, s.addr) }, "pod %s was to live on", s.pod.Name)
	}
	ended.isReleased(ctx)
	for i := range len(all) + 1 {
		a.startPod(ctx, fmt.Sprintf("new-%d", i), a.Node(2), nil)
	}
	for i, s := range all {
		s.passesAtHome(ctx, due[i])
	}
	a.controllersAreOut(ctx)
	now := a.leader(ctx)
	must(now != "" && now != leader, "%q led before its controller was replaced, and %q leads now", leader, now)
	a.story.Say("Both controllers were replaced meanwhile, and another one leads.")
	for _, s := range all {
		s.end(ctx)
	}
}

// stageStuck fills a pool with pods of one node: one for each ailment, and one that will end.
func (a *act) stageStuck(ctx context.Context) (all []*stuck, ended *zombie) {
	ills := ailments()
	a.makePool(ctx, len(ills)+1, a.behindRouter)
	pod := a.runPod(ctx, "ended", a.Node(1), nil)
	for _, ill := range ills {
		a.startPod(ctx, ill.name, a.Node(1), func(p *corev1.Pod) {
			if ill.args != nil {
				p.Spec.Containers[0].Args = ill.args
			}
		})
	}
	ended = a.zombieOf(ctx, pod)
	for i, ill := range ills {
		z := ended.beside(a.pod(ctx, ill.name), 240+i)
		z.door = a.openDoor(ctx, z.pod)
		all = append(all, &stuck{zombie: z, ailment: ill})
	}
	return all, ended
}

// isReleased deletes the pod normally. It judges that no frame of the pod follows the end of its
// lease, although the macvlan plugin removes its link only afterwards.
func (z *zombie) isReleased(ctx context.Context) {
	z.pings.waitFor(ctx, 20)
	z.story.Say("Pod %s has %s, announces it every %s, and gets a ping every %s. It is deleted.", z.pod.Name, z.addr, cryEvery, pingEvery)
	deleted := time.Now()
	z.deletePod(ctx, z.pod, false)
	free := z.chronicle.wait(ctx, podLimit, z.addr, deleted, "deleted", isDeleted)
	// A late frame would come while the pod is taken apart.
	eventually(ctx, podLimit, "the end of pod "+z.pod.Name, func(ctx context.Context) {
		z.isGone(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: z.namespace, Name: z.pod.Name}}, "its containers")
	})
	spoken := capture.From(capture.SpokenFor(z.capture.Frames(), z.addr), z.mac)
	must(len(spoken) != 0, "the capture has no frame of %s, so it proves nothing", z.mac)
	if late := capture.After(spoken, free.at); len(late) > 0 {
		fail("%d frames of the old holder came after its lease was gone, the first one %s: %s", len(late), late[0].Time.Sub(free.at), late[0])
	}
	last := spoken[len(spoken)-1]
	z.story.Say("Its last frame came %s before its lease was deleted.", round(free.at.Sub(last.Time)))
}

// takenAfter returns the earliest time at which the address may be taken.
func (s *stuck) takenAfter(ctx context.Context) time.Time {
	if s.force {
		return s.cut.Add(v1alpha1.DefaultExtraGrace)
	}
	pod := &corev1.Pod{}
	check(s.api.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.pod.Name}, pod))
	must(pod.DeletionTimestamp != nil, "pod %s is not Terminating", pod.Name)
	return pod.DeletionTimestamp.Add(v1alpha1.DefaultExtraGrace)
}

// passesAtHome judges that the address goes from the stuck pod to another pod. The stuck pod's own
// node verifies it: it has killed the slot, and needs to ask nobody.
func (s *stuck) passesAtHome(ctx context.Context, due time.Time) {
	quarantined := s.chronicle.wait(ctx, reclaimLimit, s.addr, s.cut, "Quarantined", isQuarantined)
	// The API server's times are whole seconds.
	early := due.Sub(quarantined.at)
	must(early <= time.Second, "%s was taken %s too early", s.addr, early)
	must(quarantined.Spec.NodeName == s.pod.Node.Name(),
		"%s is verified by %s, not by its holder's own node %s, which works", s.addr, quarantined.Spec.NodeName, s.pod.Node.Name())
	free := s.chronicle.wait(ctx, reclaimLimit, s.addr, quarantined.at, "free", leftHolder(s.pod.UID))
	s.next = s.successor(ctx)
	must(addressOf(s.next) == s.addr, "pod %s has %s, not %s", s.next.Name, addressOf(s.next), s.addr)
	s.hearsOnly(ctx, s.next, free.at)
	change := s.changeTo(s.next)
	check(change.OnlyNewAfter(s.capture.Frames(), free.at))
	s.story.Say("The address of pod %s was quarantined %s after the deletion, and free %s later. Only pod %s answers for it. Pod %s still runs, but its kernel dropped %d of its frames.",
		s.pod.Name, round(quarantined.at.Sub(s.cut)), round(free.at.Sub(quarantined.at)), s.next.Name, s.pod.Name, s.crier.refused.Load())
	s.door.isShut(ctx, free.at)
	s.door.leadsTo(ctx, s.next)
	s.isMute()
}

// end heals the pod, so that it ends. Its successor stays.
func (s *stuck) end(ctx context.Context) {
	check(s.heal(ctx, s.pod))
	s.ends(ctx)
	s.hearsOnly(ctx, s.next, time.Now())
	s.boundTo(ctx, s.addr, s.next.UID)
}
