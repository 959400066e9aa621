// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// Sizes of the scenario in which a pool is full.
const (
	fullPool = 4
	tooMany  = 2
)

// playExhausted: pods that find a pool full are told, and get addresses as soon as other pods have
// freed them.
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
		old = append(old, passing{pod: p, change: change{addr: addressOf(p), old: macOf(p), oldPort: "ul-" + p.Node.Name()}})
		a.deletePod(ctx, p, false)
	}
	for n := range old {
		old[n].free = chronicle.wait(ctx, podLimit, old[n].addr, deleted, "deleted", isDeleted).at
	}
	before := exhausted(ctx, a)
	a.story.Say("%d pods are deleted, so %s and %s become free.", len(old), old[0].addr, old[1].addr)
	successors := a.running(ctx, tooMany, func(p *corev1.Pod) bool { return slices.Contains(waiting, p.Name) })
	for _, o := range old {
		next := chronicle.wait(ctx, podLimit, o.addr, o.free, "the next pod's", func(e entry) bool { return isBoundToOther(e, o.pod.UID) })
		took := next.at.Sub(o.free)
		must(took <= servedMost, "%s was free for %s while pods waited for it", o.addr, took)
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
	change
	pod  *cluster.Pod
	free time.Time
}

// isFull: an event tells each waiting pod which pool is full, and a condition of the pool says so.
// It returns the names of the waiting pods.
func (a *act) isFull(ctx context.Context) []string {
	waiting := a.waiting(ctx, tooMany)
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
		n := slices.IndexFunc(successors, func(s *cluster.Pod) bool { return addressOf(s) == p.addr })
		must(n >= 0, "%s of pod %s went to nobody", p.addr, p.pod.Name)
		p.new = macOf(successors[n])
		w.hears(ctx, successors[n])
		check(p.onlyNewAfter(w.capture.Frames(), p.free))
		flips := capture.Flips(w.capture.Frames(), p.addr)
		must(flips == 1, "the speaker for %s changed %d times, not once", p.addr, flips)
	}
	for _, p := range stayed {
		check(speaksAlone(w.capture.Frames(), p))
	}
	a.story.Say("The %d pods that waited got them without another try of the kubelet. Each address had one speaker at a time.", len(successors))
}

// exhausted counts the ADDs that found every pool full.
func exhausted(ctx context.Context, a *act) float64 {
	return agents(ctx, a.Nodes(), "fenceline_cni_duration_seconds", map[string]string{"verb": "ADD", "result": "exhausted"})
}

// waiting returns the names of the pods that are not Ready. It fails unless they are count.
func (a *act) waiting(ctx context.Context, count int) []string {
	pods := a.pods(ctx)
	var waiting []string
	for _, p := range pods {
		if !isReady(&p) && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodPending {
			waiting = append(waiting, p.Name)
		}
	}
	must(len(waiting) == count, "%d pods were to wait: %s", count, names(pods))
	return waiting
}
