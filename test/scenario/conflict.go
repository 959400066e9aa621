// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// playConflict shows that an address that a foreign host uses is not given to a pod.
//
// The pool has three addresses. Pod neighbour has one. Pod first had the second, which cools down. So
// the first candidate of the next pod is the third address, which the foreign host uses.
func playConflict(ctx context.Context, a *act) {
	a.makePool(ctx, 3, func(s *v1alpha1.IPPoolSpec) {
		s.Reclaim = &v1alpha1.Reclaim{Cooldown: &v1alpha1.Duration{Duration: 10 * time.Minute}}
	})
	chronicle := a.keepChronicle(ctx, a.namespace)
	node := a.Node(1)
	first := a.runPod(ctx, "first", node, nil)
	// This node hears the neighbour's node, so the silence of other hosts counts (R2).
	neighbour := a.runPod(ctx, "neighbour", a.Node(3), nil)
	had, used := addressOf(first), a.address(firstHost)
	for used == had || used == addressOf(neighbour) {
		used = used.Next()
	}
	host := a.foreignHost("printer", netip.PrefixFrom(used, underlay.Bits()))
	a.story.Say("A pool of three addresses. Pod neighbour has one, and pod first has %s. A printer that Fenceline does not know uses the third one, %s, with MAC %s.", had, used, host.MAC)
	a.deletePod(ctx, first, false)
	started := time.Now()
	chronicle.wait(ctx, podLimit, had, started, "deleted", isDeleted)
	a.story.Say("Pod first ends, and %s cools down. Pod second starts: the first candidate is the address of the printer.", had)
	before := added(ctx, node)
	second := a.runPod(ctx, "second", node, nil)
	after := added(ctx, node)
	must(after-before == 1, "the pod took %v ADDs, not one", after-before)
	a.setAside(ctx, chronicle, second, had, used, host)
	a.poolEnds(ctx, neighbour, second)
}

// setAside judges that the pod got the other address in the same ADD, and that the lease of the first
// candidate is Quarantined and names the foreign host.
func (a *act) setAside(ctx context.Context, c *chronicle, pod *cluster.Pod, had, used netip.Addr, host *cluster.Host) {
	must(addressOf(pod) == had, "pod %s has %s, not %s", pod.Name, addressOf(pod), had)
	conflict := c.wait(ctx, eventLimit, used, time.Time{}, "Quarantined for a conflict", isQuarantined)
	spec := conflict.Spec
	if spec.Reason != v1alpha1.ReasonConflict || spec.Conflict == nil || spec.Conflict.MAC != host.MAC.String() {
		fail("%s does not name the foreign host %s: %+v", conflict, host.MAC, ptr.Deref(spec.Conflict, v1alpha1.Conflict{}))
	}
	event := a.event(ctx, pod.Name, "AddressConflict", host.MAC.String())
	a.show(ctx, "get", "fllease", "-o", "wide")
	a.story.Say("The ADD found the printer, and gave %s to the pod instead. The event of the pod: %q", had, event.Message)
}

// poolEnds deletes the pods and the pool. The printer stays for good, and the pool does not wait for it.
func (a *act) poolEnds(ctx context.Context, pods ...*cluster.Pod) {
	for _, pod := range pods {
		a.deletePod(ctx, pod, false)
	}
	a.story.Say("The pods and the pool are deleted, and the printer stays.")
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}
	did(a.api.Delete(ctx, pool), "delete pool %s", pool.Name)
	deleted := time.Now()
	eventually(ctx, podLimit, "the end of pool "+pool.Name, func(ctx context.Context) {
		left := a.leases(ctx, pool.Name)
		a.isGone(ctx, pool, fmt.Sprintf("leases %v", brief(left)))
	})
	a.story.Say("The pool is gone after %s.", round(time.Since(deleted)))
}

// added returns the number of ADDs on a node, with any result.
func added(ctx context.Context, node *cluster.Node) float64 {
	return agents(ctx, []*cluster.Node{node}, "fenceline_cni_duration_seconds", map[string]string{"verb": "ADD"})
}

const (
	// defenceLimit is how long an agent may take to answer a second speaker on a busy machine.
	defenceLimit = 250 * time.Millisecond
	// firstReprobe is the time until a conflicting address is probed again.
	firstReprobe = 10 * time.Second
	// returnLimit is how long an address may stay Quarantined after the foreign host has left: it is
	// probed again after 10, then 20 seconds.
	returnLimit = 60 * time.Second
)

// latecomer is a foreign host that takes an address after a pod has got it.
type latecomer struct {
	*act
	chronicle *chronicle
	capture   *capture.Capture
	old       *cluster.Pod
	addr      netip.Addr
	host      *cluster.Host
}

// playLatecomer: the pod defends its address. After the pod has ended, nobody gets the address until
// the foreign host has left.
func playLatecomer(ctx context.Context, a *act) {
	l := a.stageLatecomer(ctx)
	l.defends(ctx)
	l.boundTo(ctx, l.addr, l.old.UID)
	l.goes(ctx)
	l.probedAgain(ctx)
	l.nobodyElse()
	l.comesBack(ctx)
	free := time.Now()
	next := l.pod(ctx, "next")
	speaksAlone(capture.After(l.capture.Frames(), free), next)
	l.story.Say("Pod next has waited, and gets %s.", addressOf(next))
}

func (a *act) stageLatecomer(ctx context.Context) *latecomer {
	a.makePool(ctx, 2, nil)
	l := &latecomer{act: a}
	// Other nodes hear this node, so the silence of other hosts counts (R2).
	a.runPod(ctx, "neighbour", a.Node(3), nil)
	l.chronicle = a.keepChronicle(ctx, a.namespace)
	l.capture = a.record()
	l.old = a.runPod(ctx, "old", a.Node(1), nil)
	l.addr = addressOf(l.old)
	a.story.Say("Pod old has %s. The only other address of the pool is in use too.", l.addr)
	return l
}

// defends: the first frame of the foreign host is recorded, and the node answers it with a claim and
// an announcement of the pod's address.
func (l *latecomer) defends(ctx context.Context) {
	before := l.conflicts(ctx)
	l.host = l.foreignHost("printer", netip.PrefixFrom(l.addr, underlay.Bits()))
	spoke := time.Now()
	// It announces three times, because its switch port may forward a moment after it was plugged in.
	value(l.host.Exec(ctx, "arping", "-q", "-U", "-c", "3", "-I", "eth0", l.addr.String()))
	recorded := l.chronicle.wait(ctx, eventLimit, l.addr, spoke, "Bound with a conflict", func(e entry) bool { return e.Spec.Conflict != nil })
	if c := recorded.Spec.Conflict; recorded.Spec.State != v1alpha1.StateBound || c.MAC != l.host.MAC.String() || c.Count != 1 || c.FirstSeen.IsZero() {
		fail("%s was to stay Bound and to name %s once: %+v", recorded, l.host.MAC, c)
	}
	l.answered(spoke)
	l.eventOf(ctx, "IPLease", recorded.Name, "AddressConflict", l.host.MAC.String())
	after := l.conflicts(ctx)
	must(after-before == 1, "%v conflicts were counted, not one", after-before)
	l.story.Say("A printer that Fenceline does not know announces the same address with MAC %s. Lease, event, metric and audit log report it, and the pod keeps the address.", l.host.MAC)
}

// answered judges the defence on the wire.
func (l *latecomer) answered(since time.Time) {
	frames := capture.After(l.capture.Frames(), since)
	claims := capture.Of(capture.About(frames, l.addr), "claim")
	must(len(claims) != 0, "%s was not claimed from the foreign host", l.addr)
	defence := claims[0]
	announced := capture.From(capture.SpokenFor(capture.After(frames, defence.Time), l.addr), macOf(l.old))
	must(len(announced) > 0, "%s was not announced after the claim %s", l.addr, defence)
	intruding := capture.From(capture.SpokenFor(frames, l.addr), l.host.MAC)
	intruding = slices.DeleteFunc(intruding, func(f capture.Frame) bool { return f.Time.After(defence.Time) })
	must(len(intruding) != 0, "there was a claim before the foreign host spoke: %s", defence)
	took := defence.Time.Sub(intruding[len(intruding)-1].Time)
	must(took <= defenceLimit, "%s was defended %s after the foreign host spoke", l.addr, took)
}

// conflicts returns the number of conflicts that the agent of the pod's node has seen.
func (l *latecomer) conflicts(ctx context.Context) float64 {
	return agents(ctx, []*cluster.Node{l.old.Node}, "fenceline_conflicts_total", map[string]string{"pool": l.namespace})
}

// goes ends the pod while the foreign host stays. The next pod does not get the address.
func (l *latecomer) goes(ctx context.Context) {
	deleted := time.Now()
	l.deletePod(ctx, l.old, false)
	l.chronicle.wait(ctx, podLimit, l.addr, deleted, "deleted", isDeleted)
	l.startPod(ctx, "next", l.Node(2), nil)
	event := l.event(ctx, "next", "AddressConflict", l.host.MAC.String())
	l.story.Say("Pod old is deleted, and the printer stays. Pod next waits. Its event: %q", event.Message)
}

// probedAgain: the lease records each sighting, and the back-off lies between two probes.
func (l *latecomer) probedAgain(ctx context.Context) {
	again := l.chronicle.wait(ctx, eventLimit, l.addr, time.Time{}, "seen again", func(e entry) bool {
		c := e.Spec.Conflict
		return isQuarantined(e) && c != nil && c.LastSeen.Sub(c.FirstSeen.Time) >= firstReprobe-time.Second
	})
	c := again.Spec.Conflict
	if c.MAC != l.host.MAC.String() || c.Count != 2 {
		fail("%s was to name %s, seen by the ADD and by one probe since: %+v", again, l.host.MAC, c)
	}
	l.show(ctx, "get", "fllease", "-o", "wide")
	l.story.Say("The address is probed again after %s. The lease says: MAC %s, first seen %s, last seen %s, %d times.",
		firstReprobe, c.MAC, c.FirstSeen.Format(time.TimeOnly), c.LastSeen.Format(time.TimeOnly), c.Count)
}

// nobodyElse: since the end of the pod's lease, only the foreign host has used the address.
func (l *latecomer) nobodyElse() {
	entries, _ := l.chronicle.of(l.addr)
	i := slices.IndexFunc(entries, isDeleted)
	must(i >= 0, "the lease of pod old was never deleted")
	speakers := capture.Speakers(capture.After(l.capture.Frames(), entries[i].at), l.addr)
	for _, speaker := range speakers {
		must(speaker == l.host.MAC.String(), "%v speak for %s, not only the foreign host %s", speakers, l.addr, l.host.MAC)
	}
}

// comesBack switches the foreign host off, and waits until its address is free.
func (l *latecomer) comesBack(ctx context.Context) {
	value(l.host.Exec(ctx, "ip", "link", "set", "eth0", "down"))
	left := time.Now()
	l.story.Say("The printer is switched off. Fenceline has to find that out by probes.")
	l.chronicle.wait(ctx, returnLimit, l.addr, left, "deleted", isDeleted)
	l.story.Say("After %s, the address of the printer is free again.", round(time.Since(left)))
}
