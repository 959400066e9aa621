// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// ailment is a cause for which a pod survives its deletion on a node that works.
type ailment struct {
	// what is a clause about the pod.
	what string
	// force is set if the pod is deleted by force.
	force        bool
	change       func(*corev1.Pod)
	befall, heal func(context.Context, *cluster.Pod) error
}

// playFrozen: a pod whose cgroup is frozen stays Terminating.
func playFrozen(ctx context.Context, a *act) error {
	return a.playStuck(ctx, ailment{
		what:   "its cgroup is frozen, so that not even SIGKILL ends it",
		befall: func(ctx context.Context, p *cluster.Pod) error { return p.Freeze(ctx) },
		heal:   func(ctx context.Context, p *cluster.Pod) error { return p.Thaw(ctx) },
	})
}

// playShim: a pod whose containerd-shim does not react stays Terminating.
func playShim(ctx context.Context, a *act) error {
	return a.playStuck(ctx, ailment{
		what:   "its containerd-shim is stopped, so that containerd cannot end it",
		befall: func(_ context.Context, p *cluster.Pod) error { return p.StopShim() },
		heal:   func(_ context.Context, p *cluster.Pod) error { return p.ContinueShim() },
	})
}

// playStubborn: a pod that ignores SIGTERM is deleted by force, and lives on,
// known to nobody. kubelet would still send SIGKILL, after two seconds and
// whatever the pod's grace: so the shim that would carry it out hangs.
func playStubborn(ctx context.Context, a *act) error {
	return a.playStuck(ctx, ailment{
		what:   "its process ignores SIGTERM, its containerd-shim hangs, and it is deleted by force",
		force:  true,
		change: func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"serve", "-stubborn"} },
		befall: func(_ context.Context, p *cluster.Pod) error { return p.StopShim() },
		heal:   func(_ context.Context, p *cluster.Pod) error { return p.ContinueShim() },
	})
}

// playStuck: the address of a pod that should be gone is taken after its time,
// fenced at once, and serves somebody else. The pool has one address.
func (a *act) playStuck(ctx context.Context, ill ailment) error {
	if err := a.makePool(ctx, 1, a.behindRouter); err != nil {
		return err
	}
	old, err := a.runPod(ctx, "old", a.Node(1), ill.change)
	if err != nil {
		return err
	}
	door, err := a.openDoor(ctx, old)
	if err != nil {
		return err
	}
	z, err := a.zombieOf(ctx, old)
	if err != nil {
		return err
	}
	a.story.Say("Pod old has %s, the only address of its pool. Then %s.", z.addr, ill.what)
	a.after("heal pod old", func(ctx context.Context) error { return ignoreGone(old, ill.heal(ctx, old)) })
	if err := ill.befall(ctx, old); err != nil {
		return err
	}
	if err := a.deletePod(ctx, old, ill.force); err != nil {
		return err
	}
	z.cut = time.Now()
	due, err := z.takenAfter(ctx, ill.force)
	if err != nil {
		return err
	}
	if err := z.answersARP(ctx, z.addr); err != nil {
		return fmt.Errorf("pod old was to live on: %w", err)
	}
	if err := a.startPod(ctx, "new", a.Node(2), nil); err != nil {
		return err
	}
	successor, since, err := z.passesAtHome(ctx, due)
	if err != nil {
		return err
	}
	if err := door.isShut(ctx, since); err != nil {
		return err
	}
	if err := door.leadsTo(ctx, successor); err != nil {
		return err
	}
	if !old.Alive() {
		return errors.New("pod old has ended, so its silence proves nothing")
	}
	return errors.Join(ill.heal(ctx, old), z.endsBeside(ctx))
}

// takenAfter returns the moment before which the address must not be taken.
func (z *zombie) takenAfter(ctx context.Context, force bool) (time.Time, error) {
	if force {
		return z.cut.Add(v1alpha1.DefaultExtraGrace), nil
	}
	pod := &corev1.Pod{}
	if err := z.api.Get(ctx, client.ObjectKey{Namespace: z.namespace, Name: z.pod.Name}, pod); err != nil {
		return time.Time{}, err
	}
	if pod.DeletionTimestamp == nil {
		return time.Time{}, fmt.Errorf("pod %s is not Terminating", pod.Name)
	}
	return pod.DeletionTimestamp.Add(v1alpha1.DefaultExtraGrace), nil
}

// passesAtHome sees the address go from the stuck pod to pod new. Its node is
// its own verifier: the slot is killed, and nobody needs to be asked. It returns pod new and the moment
// when the address was free.
func (z *zombie) passesAtHome(ctx context.Context, due time.Time) (*cluster.Pod, time.Time, error) {
	quarantined, err := z.chronicle.wait(ctx, reclaimLimit, z.addr, z.cut, "Quarantined", isQuarantined)
	if err != nil {
		return nil, time.Time{}, err
	}
	// The API server's times are whole seconds.
	if early := due.Sub(quarantined.at); early > time.Second {
		return nil, time.Time{}, fmt.Errorf("%s was taken %s too early", z.addr, early)
	}
	if quarantined.Spec.NodeName != z.pod.Node.Name() {
		return nil, time.Time{}, fmt.Errorf("%s is verified by %s, not by its holder's own node %s, which works", z.addr, quarantined.Spec.NodeName, z.pod.Node.Name())
	}
	z.figures.add("address taken, from the deletion", quarantined.at.Sub(z.cut))
	free, err := z.chronicle.wait(ctx, reclaimLimit, z.addr, quarantined.at, "free", leftHolder(z.pod.UID))
	if err != nil {
		return nil, time.Time{}, err
	}
	z.figures.add("quarantine to fenced and free", free.at.Sub(quarantined.at))
	successor, err := z.running(ctx, 1, func(p *corev1.Pod) bool { return p.Name == "new" })
	if err != nil {
		return nil, time.Time{}, err
	}
	if addressOf(successor[0]) != z.addr {
		return nil, time.Time{}, fmt.Errorf("pod new has %s, not %s", addressOf(successor[0]), z.addr)
	}
	z.figures.add("address bound to a new pod, from the deletion", time.Since(z.cut))
	if err := z.hearsOnly(ctx, successor[0], free.at); err != nil {
		return nil, time.Time{}, err
	}
	change, err := z.changeTo(successor[0])
	if err != nil {
		return nil, time.Time{}, err
	}
	if err := change.onlyNewAfter(z.capture.Frames(), free.at); err != nil {
		return nil, time.Time{}, err
	}
	if z.crier.refused.Load() == 0 {
		return nil, time.Time{}, errors.New("the kernel refused no frame of pod old")
	}
	byOld := capture.From(capture.SpokenFor(z.capture.Frames(), z.addr), z.mac)
	z.figures.add("quarantine to the last frame of pod old", byOld[len(byOld)-1].Time.Sub(quarantined.at))
	z.story.Say("The address was quarantined %s after the deletion, and free %s later. Only pod new answers for it. Pod old still runs, but its kernel dropped %d of its frames.",
		round(quarantined.at.Sub(z.cut)), round(free.at.Sub(quarantined.at)), z.crier.refused.Load())
	return successor[0], free.at, nil
}

// endsBeside: once the stuck pod can end, it does, and its successor stays.
func (z *zombie) endsBeside(ctx context.Context) error {
	err := eventually(ctx, homeLimit, "the end of pod old", func(context.Context) error {
		if z.pod.Alive() {
			return errors.New("it is alive")
		}
		return nil
	})
	if err != nil {
		return err
	}
	successor, err := z.running(ctx, 1, func(p *corev1.Pod) bool { return p.Name == "new" })
	if err != nil {
		return err
	}
	return errors.Join(z.hearsOnly(ctx, successor[0], time.Now()), z.boundTo(ctx, z.addr, successor[0].UID))
}

// ignoreGone ignores an error about a pod that has ended.
func ignoreGone(pod *cluster.Pod, err error) error {
	if !pod.Alive() {
		return nil
	}
	return err
}
