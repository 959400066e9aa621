// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// defenceLimit is how long an agent may take to answer a second speaker on a
	// busy machine.
	defenceLimit = 250 * time.Millisecond
	// firstReprobe is the time until a conflicting address is probed again.
	firstReprobe = 10 * time.Second
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
	l.comesBack(ctx, l.chronicle, l.host)
	free := time.Now()
	next := l.pod(ctx, "next")
	check(speaksAlone(capture.After(l.capture.Frames(), free), next))
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
