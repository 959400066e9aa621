// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/test/cluster"
)

const (
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
	// patient are the pods of a Deployment that Kubernetes leaves on the node, with the leases of
	// their addresses. loyal is a StatefulSet's pod there, which Kubernetes gives up.
	patient []*cluster.Pod
	leases  map[netip.Addr]types.UID
	loyal   *cluster.Pod
}

// playFlapping: the management cable of a node is out until the address of one pod, which Kubernetes
// gives up, is taken. Then the cable is loose. The other pods keep their addresses and notice
// nothing. The first one is fenced, and its successor has its address.
func playFlapping(ctx context.Context, a *act) {
	f := a.stageFlapping(ctx)
	began := time.Now()
	a.healLater(f.node)
	check(f.node.CutManagement())
	f.chronicle.wait(ctx, awayLimit+reclaimLimit, addressOf(f.loyal), began, "Quarantined", isQuarantined)
	check(f.node.HealManagement())
	a.story.Say("The management cable of %s was unplugged for %s, until the address of pod %s was taken.", f.node.Name(), round(time.Since(began)), f.loyal.Name)
	for range flaps {
		a.lasts(ctx, flapUp)
		check(f.node.CutManagement())
		a.lasts(ctx, flapDown)
		check(f.node.HealManagement())
	}
	a.story.Say("Then it was unplugged %d times for %s.", flaps, flapDown)
	check(a.WaitReady(ctx))
	f.comesBackItself(ctx)
	f.noticedNothing(ctx, began)
}

// stageFlapping makes the pods, two of the Deployment on each node, and a client of these pods.
func (a *act) stageFlapping(ctx context.Context) *flapping {
	size := 2 * len(a.Nodes())
	a.makePool(ctx, 2*size, nil)
	f := &flapping{act: a, leases: map[netip.Addr]types.UID{}}
	f.node = a.victim(ctx)
	a.deploy(ctx, size, staying)
	a.deploySet(ctx, f.node)
	f.patient = a.running(ctx, size+1, everyPod)
	isLoyal := func(p *cluster.Pod) bool { return p.Name == workload+"-0" }
	f.loyal = f.patient[slices.IndexFunc(f.patient, isLoyal)]
	f.patient = slices.DeleteFunc(f.patient, isLoyal)
	var addrs []netip.Addr
	for _, p := range f.patient {
		f.leases[addressOf(p)] = a.lease(ctx, addressOf(p)).UID
		addrs = append(addrs, addressOf(p))
	}
	must(f.loyal.Node.Name() == f.node.Name(), "pod %s is on %s, not on %s", f.loyal.Name, f.loyal.Node.Name(), f.node.Name())
	f.chronicle = a.keepChronicle(ctx, a.namespace)
	f.witness = a.watch(addrs...)
	a.cry(f.loyal)
	a.story.Say("%d pods of a Deployment tolerate an unreachable node. Pod %s of a StatefulSet on %s does not. Clients use all of them.", size, f.loyal.Name, f.node.Name())
	f.pings.waitFor(ctx, 20*len(addrs))
	return f
}

// lasts waits for the length of a fault, or of the time between two faults.
func (a *act) lasts(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
		check(ctx.Err())
	case <-time.After(d):
	}
}

// comesBackItself: the successor has the name and the address of the pod that was given up.
func (f *flapping) comesBackItself(ctx context.Context) {
	addr := addressOf(f.loyal)
	successor := f.running(ctx, 1, func(p *corev1.Pod) bool { return p.Name == f.loyal.Name && string(p.UID) != f.loyal.UID })[0]
	must(addressOf(successor) == addr, "pod %s had %s, and comes back with %s", f.loyal.Name, addr, addressOf(successor))
	f.story.Say("Kubernetes deleted pod %s, its old container was fenced, and the new one has %s.", f.loyal.Name, addr)
}

// noticedNothing: the other pods have the same leases as before and lost no ping, and every address
// had one speaker at a time.
func (f *flapping) noticedNothing(ctx context.Context, began time.Time) {
	f.running(ctx, len(f.patient)+1, everyPod)
	for _, p := range f.patient {
		f.boundTo(ctx, addressOf(p), p.UID)
		must(f.lease(ctx, addressOf(p)).UID == f.leases[addressOf(p)], "the lease of %s was lost and made again", addressOf(p))
	}
	f.pings.waitFor(ctx, 20*len(f.patient))
	f.pings.noneLost(began)
	pings := f.pings.all()
	f.story.Say("The other pods have the same leases as before, and answered all %d pings.", len(pings))
	check(takeTurns(f.capture.Frames(), f.addresses()))
}
