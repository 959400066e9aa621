// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// Sizes of the scenario in which a pool is full.
const (
	fullPool = 4
	tooMany  = 2
)

// playExhausted: pods that find a pool full are told, and get addresses as soon as other pods have freed them.
func playExhausted(ctx context.Context, a *act) {
	a.makePool(ctx, fullPool, nil)
	chronicle := a.keepChronicle(ctx, a.namespace)
	for n := range fullPool + tooMany {
		a.startPod(ctx, "web-"+strconv.Itoa(n), a.Node(1+n%len(a.Nodes())), nil)
	}
	pods := a.running(ctx, fullPool, everyPod)
	waiting := a.isFull(ctx)
	w := a.watch(addressOf(pods[2]), addressOf(pods[3]), addressOf(pods[0]), addressOf(pods[1]))
	w.pings.waitFor(ctx, 20*fullPool)
	deleted := time.Now()
	var old []passing
	for _, p := range pods[:tooMany] {
		old = append(old, passing{pod: p, Change: changeOf(p)})
		a.deletePod(ctx, p, false)
	}
	for n := range old {
		old[n].free = chronicle.wait(ctx, podLimit, old[n].Addr, deleted, "deleted", isDeleted).at
	}
	before := exhausted(ctx, a)
	a.story.Say("%d pods are deleted, so %s and %s become free.", len(old), old[0].Addr, old[1].Addr)
	successors := a.running(ctx, tooMany, func(p *corev1.Pod) bool { return slices.Contains(waiting, p.Name) })
	for _, o := range old {
		next := chronicle.wait(ctx, podLimit, o.Addr, o.free, "the next pod's", func(e entry) bool { return isBoundToOther(e, o.pod.UID) })
		took := next.at.Sub(o.free)
		must(took <= servedMost, "%s was free for %s while pods waited for it", o.Addr, took)
	}
	after := exhausted(ctx, a)
	must(after <= before, "%v ADDs found the pool exhausted after two addresses had become free", after-before)
	a.passed(ctx, w, old, pods[tooMany:], successors)
	for _, p := range append(pods[tooMany:], successors...) {
		a.deletePod(ctx, p, false)
	}
	a.rollsOn(ctx, chronicle)
	a.nothingIsLeft(ctx, a.namespace)
}

// passing is an address that is given back, with the time at which it was free.
type passing struct {
	capture.Change
	pod  *cluster.Pod
	free time.Time
}

// isFull: an event tells each waiting pod which pool is full, and a condition of the pool says so.
// It returns the names of the waiting pods.
func (a *act) isFull(ctx context.Context) []string {
	pods := a.pods(ctx)
	var waiting []string
	for _, p := range pods {
		if !isReady(&p) && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodPending {
			waiting = append(waiting, p.Name)
		}
	}
	must(len(waiting) == tooMany, "%d pods were to wait: %s", tooMany, names(pods))
	why := fmt.Sprintf("pool %s: it is exhausted, %d of its %d addresses have a lease", a.namespace, fullPool, fullPool)
	for _, name := range waiting {
		event := a.event(ctx, name, "AddressAwaited", why)
		a.story.Say("Pod %s waits. Its event: %q", name, event.Message)
	}
	a.condition(ctx, a.namespace, v1alpha1.ConditionExhausted)
	a.show(ctx, "get", "flpool", a.namespace)
	return waiting
}

// passed: the waiting pods have the addresses that were given back. On the wire, each address has
// had one speaker at a time.
func (a *act) passed(ctx context.Context, w *witness, old []passing, stayed, successors []*cluster.Pod) {
	a.distinctAndLeased(ctx, append(slices.Clone(stayed), successors...))
	for _, p := range old {
		n := slices.IndexFunc(successors, func(s *cluster.Pod) bool { return addressOf(s) == p.Addr })
		must(n >= 0, "%s of pod %s went to nobody", p.Addr, p.pod.Name)
		p.New = macOf(successors[n])
		w.hears(ctx, successors[n])
		check(p.OnlyNewAfter(w.capture.Frames(), p.free))
		flips := capture.Flips(w.capture.Frames(), p.Addr)
		must(flips == 1, "the speaker for %s changed %d times, not once", p.Addr, flips)
	}
	for _, p := range stayed {
		speaksAlone(w.capture.Frames(), p)
	}
	a.story.Say("The %d pods that waited got them without another try of the kubelet. Each address had one speaker at a time.", len(successors))
}

// exhausted counts the ADDs that found every pool full.
func exhausted(ctx context.Context, a *act) float64 {
	return agents(ctx, a.Nodes(), "fenceline_cni_duration_seconds", map[string]string{"verb": "ADD", "result": "exhausted"})
}

const (
	// rolledPods is the number of pods of the rolling update. The pool has one spare address.
	rolledPods = 10
	// servedHalf and servedMost bound the time from the release of an address until a pod that waited
	// has it, for half of the releases and for 99 of 100.
	servedHalf, servedMost = time.Second, 3 * time.Second
)

// rollsOn: a rolling update on a pool with one spare address. Its pods wait for each other's addresses,
// and get each of them as soon as it is free.
func (a *act) rollsOn(ctx context.Context, c *chronicle) {
	a.editPool(ctx, a.namespace, func(s *v1alpha1.IPPoolSpec) { s.IPs = a.ips(firstHost, rolledPods+1) })
	before := granted(ctx, a)
	a.deploy(ctx, rolledPods)
	pods := a.running(ctx, rolledPods, everyPod)
	a.metricsAgree(ctx, before, rolledPods, rolledPods+1) // once the leases of the deleted pods have ended
	a.distinctAndLeased(ctx, pods)
	began := time.Now()
	a.rollOut(ctx, a.deployment(), 1)
	eventually(ctx, rollLimit, "the rolling update to end", func(ctx context.Context) { a.rolledOut(ctx, client.ObjectKeyFromObject(a.deployment())) })
	took := handedOn(c.all(), a.waitsSince(ctx), began)
	must(len(took) != 0, "no pod has waited for another pod's address")
	half, most := took[len(took)/2], took[(len(took)-1)*99/100]
	a.story.Say("In a rolling update of %d pods on %d addresses, %d pods wait for an address. They have it %s (half) and %s (99 of 100) after it is free.",
		rolledPods, rolledPods+1, len(took), round(half), round(most))
	must(half <= servedHalf && most <= servedMost,
		"addresses came free and were leased by waiting pods only after %s (half) and %s (99 of 100)", half, most)
}

// waitsSince returns the time of the first event that tells each pod that it waits.
func (a *act) waitsSince(ctx context.Context) map[string]time.Time {
	events := &corev1.EventList{}
	did(a.api.List(ctx, events, client.InNamespace(a.namespace)), "list events")
	first := map[string]time.Time{}
	for i := range events.Items {
		e := &events.Items[i]
		if e.Reason != "AddressAwaited" {
			continue
		}
		at, told := e.EventTime.Time, first[e.InvolvedObject.Name]
		if at.IsZero() {
			at = e.FirstTimestamp.Time
		}
		if told.IsZero() || at.Before(told) {
			first[e.InvolvedObject.Name] = at
		}
	}
	return first
}

// handedOn returns the times from the end of a lease until a pod that already waited has a lease of
// the address, in ascending order.
func handedOn(entries []entry, waits map[string]time.Time, since time.Time) []time.Duration {
	var took []time.Duration
	free := map[string]time.Time{}
	for _, e := range entries {
		addr := e.Spec.Address
		if e.gone {
			free[addr] = e.at
			continue
		}
		gone, ok := free[addr]
		delete(free, addr)
		if !ok || gone.Before(since) || e.Spec.Holder == nil {
			continue
		}
		if at, waited := waits[e.Spec.Holder.Pod]; waited && at.Before(gone) {
			took = append(took, e.at.Sub(gone))
		}
	}
	slices.Sort(took)
	return took
}
