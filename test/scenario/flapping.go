// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// longCut is longer than Kubernetes, which here gives a node up after 8 s and
	// its pods after 2 s more, leaves the pods that do not tolerate it where they are.
	longCut = 30 * time.Second
	// A cable that is loose.
	flaps    = 5
	flapDown = 1500 * time.Millisecond
	flapUp   = time.Second
)

// flapping is a node whose management network comes and goes.
type flapping struct {
	*act
	*witness
	node      *cluster.Node
	chronicle *chronicle
	// patient are the pods of a Deployment that Kubernetes leaves on the node, and
	// leases those of their addresses; loyal is the pod of a StatefulSet there that
	// Kubernetes gives up.
	patient []*cluster.Pod
	leases  map[netip.Addr]types.UID
	loyal   *cluster.Pod
}

// playFlapping: the management cable of a node is out for half a minute, and then
// loose. Pods that stay keep their addresses and do not notice; one that is
// given up is fenced and comes back with its address.
func playFlapping(ctx context.Context, a *act) error {
	f := value(a.stageFlapping(ctx))
	began := time.Now()
	a.after("heal the management network of "+f.node.Name(), func(ctx context.Context) error {
		return errors.Join(f.node.HealManagement(), a.WaitReady(ctx))
	})
	check(f.cutFor(ctx, longCut))
	a.story.Say("The management cable of %s was unplugged for %s.", f.node.Name(), longCut)
	for range flaps {
		check(a.lasts(ctx, flapUp))
		check(f.cutFor(ctx, flapDown))
	}
	healed := time.Now()
	a.story.Say("Then it was unplugged %d times for %s.", flaps, flapDown)
	check(a.WaitReady(ctx))
	check(f.comesBackItself(ctx))
	a.figures.add("the deleted pod runs again, after the cable was back", time.Since(healed))
	return f.noticedNothing(ctx, began)
}

// stageFlapping makes the pods, two of the Deployment on each node, and a client
// that uses each of these.
func (a *act) stageFlapping(ctx context.Context) (*flapping, error) {
	size := 2 * len(a.Nodes())
	check(a.makePool(ctx, 2*size, nil))
	f := &flapping{act: a, leases: map[netip.Addr]types.UID{}}
	f.node = value(a.victim(ctx))
	check(errors.Join(a.deploy(ctx, size, staying), a.deploySet(ctx, f.node)))
	f.patient = value(a.running(ctx, size+1, everyPod))
	isLoyal := func(p *cluster.Pod) bool { return p.Name == workload+"-0" }
	f.loyal = f.patient[slices.IndexFunc(f.patient, isLoyal)]
	f.patient = slices.DeleteFunc(f.patient, isLoyal)
	var addrs []netip.Addr
	for _, p := range f.patient {
		l := value(a.lease(ctx, addressOf(p)))
		f.leases[addressOf(p)] = l.UID
		addrs = append(addrs, addressOf(p))
	}
	if f.loyal.Node.Name() != f.node.Name() {
		return nil, fmt.Errorf("pod %s is on %s, not on %s", f.loyal.Name, f.loyal.Node.Name(), f.node.Name())
	}
	f.chronicle = value(a.keepChronicle(ctx, a.namespace))
	f.witness = value(a.watch(addrs...))
	value(a.cry(f.loyal))
	a.story.Say("%d pods of a Deployment tolerate an unreachable node. Pod %s of a StatefulSet on %s does not. Clients use all of them.", size, f.loyal.Name, f.node.Name())
	return f, f.pings.waitFor(ctx, 20*len(addrs), time.Now())
}

// staying lets a pod stay where it is for as long as Kubernetes does by itself.
// Here that is two seconds.
func staying(template *corev1.PodTemplateSpec) {
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		template.Spec.Tolerations = append(template.Spec.Tolerations, corev1.Toleration{
			Key: taint, Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
		})
	}
}

// cutFor pulls the cable and plugs it in again.
func (f *flapping) cutFor(ctx context.Context, d time.Duration) error {
	check(f.node.CutManagement())
	return errors.Join(f.lasts(ctx, d), f.node.HealManagement())
}

// lasts is how long a fault lasts, or is away.
func (a *act) lasts(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// comesBackItself: the pod that was given up lost its address, and its successor
// of the same name has it.
func (f *flapping) comesBackItself(ctx context.Context) error {
	addr := addressOf(f.loyal)
	value(f.chronicle.wait(ctx, time.Second, addr, time.Time{}, "Quarantined", isQuarantined))
	successor := value(f.running(ctx, 1, func(p *corev1.Pod) bool { return p.Name == f.loyal.Name && string(p.UID) != f.loyal.UID }))
	if addressOf(successor[0]) != addr {
		return fmt.Errorf("pod %s had %s, and comes back with %s", f.loyal.Name, addr, addressOf(successor[0]))
	}
	f.story.Say("Kubernetes deleted pod %s, its old container was fenced, and the new one has %s.", f.loyal.Name, addr)
	return nil
}

// noticedNothing: the pods that stayed have the leases that they had, no ping to
// them was lost, and every address had one speaker at a time.
func (f *flapping) noticedNothing(ctx context.Context, began time.Time) error {
	value(f.running(ctx, len(f.patient)+1, everyPod))
	for _, p := range f.patient {
		check(f.boundTo(ctx, addressOf(p), p.UID))
		l := value(f.lease(ctx, addressOf(p)))
		if l.UID != f.leases[addressOf(p)] || l.Spec.State != v1alpha1.StateBound {
			return fmt.Errorf("the lease of %s was lost and made again", addressOf(p))
		}
	}
	check(f.pings.waitFor(ctx, 20*len(f.patient), time.Now()))
	pings := f.pings.all()
	if lost := lostSince(pings, began, time.Now()); lost > 0 {
		return fmt.Errorf("%d pings to living pods were lost", lost)
	}
	f.figures.add("pings to the pods that stayed, none lost", len(pings))
	f.story.Say("The other pods have the same leases as before, and answered all %d pings.", len(pings))
	return takeTurns(f.capture.Frames(), f.addresses())
}
