// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// period is the time between two looks at all pods. Run looks at changed pods at once.
	period = 5 * time.Second
	// calm is the least pause between two looks: a pod may change its interface in a loop.
	calm = 2 * time.Millisecond
	// young is the age up to which a plugin may change the MAC of an interface whose chain does not end
	// with Fenceline (agent/holder follow).
	young = agentapi.CallTimeout + 8*time.Second
	// tellInterval is the time between two events about an interface that may stay.
	tellInterval = 10 * time.Minute
	// impostorPatience is how many interfaces of a pod are removed before all on the parent are: while one is
	// left, the pod can make the next.
	impostorPatience = 3
	// changesAhead bounds the changes that wait. After more, all pods are looked at.
	changesAhead = 256
)

// Links reads and removes the interfaces of pods. *pod.Finder implements it.
type Links interface {
	// Children returns the interfaces in a namespace that have a parent on the node.
	Children(netns string) ([]pod.Interface, error)
	// Remove removes the interface with an index in a namespace, or with index 0 all, if it has this parent.
	Remove(netns string, parent, index int) error
	// ID returns the number by which changes in a namespace are reported.
	ID(netns string) (int, error)
}

// ImpostorOptions of Impostors. All are required.
type ImpostorOptions struct {
	event.Reporter
	// Session is the current life of this node.
	Session string
	// Entries returns every entry of the journal; they are read-only.
	Entries func() []*attachment.Entry
	Links   Links
	// SourcesOf returns the sources that a slot may use.
	SourcesOf func(slot uint32) bpf.Sources
	// Gateways returns the gateways of an entry's pools, with the MAC that last used each on the entry's
	// parent. Any host of the segment can forge such a frame.
	Gateways func(*attachment.Entry) map[netip.Addr]net.HardwareAddr
	// Ask asks for an address on a parent, and returns the MACs that answer by its uplink.
	Ask func(ctx context.Context, parent int, addr netip.Addr) ([]net.HardwareAddr, error)
	// Kill makes the guard of an entry drop every frame, for good.
	Kill func(*attachment.Entry) error
	// Removed counts an entry whose interface was removed.
	Removed func(reason string)
}

// Impostors removes the interfaces by which a pod gets frames of others. The macvlan driver
// gives a frame of a sibling to the device that has its destination MAC, before the frame leaves
// the node, and a device in mode source gets the frames of the MACs that it names. No guard can
// prevent this: it sees what its own pod sends.
//
// Impostors looks at the interfaces of pods.
type Impostors struct {
	ImpostorOptions
	// changed has the numbers of the namespaces in which an interface has changed. missed: there are others.
	changed chan int
	missed  loop.Wake
	// told has the interfaces that may stay, with the time of their last event.
	told map[string]time.Time
	// removed counts the removed interfaces of each container.
	removed map[string]int
	// gateways has what is known of the gateways; questions are those to be asked.
	gateways  map[bpf.Key]*known
	questions chan bpf.Key
}

// NewImpostors returns Impostors.
func NewImpostors(o ImpostorOptions) *Impostors {
	return &Impostors{
		ImpostorOptions: o, changed: make(chan int, changesAhead), missed: loop.NewWake(), told: map[string]time.Time{},
		removed: map[string]int{}, gateways: map[bpf.Key]*known{}, questions: make(chan bpf.Key, questionsAhead),
	}
}

// Changed makes Run look at once at the pods in the namespace with this number (Links.ID).
func (w *Impostors) Changed(namespace int) {
	select {
	case w.changed <- namespace:
	default:
		w.Missed()
	}
}

// Missed makes Run look at once at all pods.
func (w *Impostors) Missed() { w.missed.Up() }

// Run looks at all pods every 5 s, and at changed pods at once, until ctx ends.
func (w *Impostors) Run(ctx context.Context) error {
	ticker := w.Clock.NewTicker(period)
	defer ticker.Stop()
	answers := make(chan answer)
	var asking sync.WaitGroup
	asking.Go(func() { w.ask(ctx, answers) })
	defer asking.Wait()
	w.Look(nil)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			w.Look(nil)
		case a := <-answers:
			w.take(a)
			w.Look(nil)
		case <-w.missed:
			w.lookAndRest(ctx, nil)
		case id := <-w.changed:
			ids := map[int]bool{id: true}
			for n := len(w.changed); n > 0; n-- {
				ids[<-w.changed] = true
			}
			w.lookAndRest(ctx, ids)
		}
	}
}

// lookAndRest looks after a change. A look asks for the number of every namespace. The pause is as long as the
// look, so a pod that changes its interface in a loop costs at most half a core.
func (w *Impostors) lookAndRest(ctx context.Context, ids map[int]bool) {
	start := w.Clock.Now()
	w.Look(ids)
	loop.For(ctx, w.Clock, max(calm, w.Clock.Since(start)), nil)
}

// Look looks at the pods in the namespaces with these numbers, or at all pods if ids is nil.
func (w *Impostors) Look(ids map[int]bool) {
	pods, alive, parents := map[string][]*attachment.Entry{}, map[string]bool{}, map[uint32]bool{}
	for _, e := range w.Entries() {
		alive[e.ContainerID], parents[uint32(e.ParentIndex)] = true, true
		if e.Session == w.Session && e.NetNS != "" && e.Phase != attachment.Releasing {
			pods[e.NetNS] = append(pods[e.NetNS], e)
		}
	}
	for path, entries := range pods {
		// Ask for the number each time: only then the kernel reports the changes of a new pod.
		id, err := w.Links.ID(path)
		if err == nil && (ids == nil || ids[id]) {
			err = w.look(path, entries)
		}
		if err != nil && !errors.Is(err, pod.ErrNoNetNS) {
			w.Log.Error(err, "the interfaces of a pod are not looked at; the agent tries again", "pod", entries[0].PodNamespace+"/"+entries[0].PodName)
		}
	}
	maps.DeleteFunc(w.gateways, func(key bpf.Key, _ *known) bool { return !parents[key.Segment] })
	maps.DeleteFunc(w.removed, func(container string, _ int) bool { return !alive[container] })
	maps.DeleteFunc(w.told, func(_ string, at time.Time) bool { return w.Clock.Since(at) >= tellInterval })
}

// look looks at the interfaces in one namespace.
func (w *Impostors) look(path string, entries []*attachment.Entry) error {
	children, err := w.Links.Children(path)
	if err != nil {
		return err
	}
	var errs []error
	judged := map[int]bool{} // two entries may have one parent
	for _, e := range entries {
		if e.Phase != attachment.Bound || !e.Settled && w.Clock.Since(e.Created) < young {
			continue
		}
		s := w.SourcesOf(e.Slot)
		for _, i := range children {
			if i.Parent.Index != e.ParentIndex || s.Mode == bpf.SourcesOff {
				continue
			}
			r := w.judge(e, entries, s, i)
			if r == none || judged[i.Index] {
				continue
			}
			all := w.removed[e.ContainerID] >= impostorPatience
			for _, c := range children {
				judged[c.Index] = judged[c.Index] || c.Index == i.Index || all && c.Parent == i.Parent
			}
			errs = append(errs, w.act(e, s.Mode, i, r, all))
		}
	}
	return errors.Join(errs...)
}

// reason is the reason for the removal of an interface, and a label of the metric.
type reason string

const (
	none        reason = ""
	impostorMAC reason = "mac"
	source      reason = "source"
)

// judge decides about an interface on the parent of an entry. Other plugins may have made it, so a MAC
// of its own is no reason. The interface of the entry has the MAC of its lease.
func (w *Impostors) judge(e *attachment.Entry, entries []*attachment.Entry, s bpf.Sources, i pod.Interface) reason {
	if i.Kind != pod.MACVLAN && i.Kind != pod.MACVTAP {
		return none // with ipvlan, the MAC is that of the parent
	}
	isGateways := w.isGateways(e, i)
	is := func(m net.HardwareAddr) bool { return bytes.Equal(m, i.MAC) }
	switch {
	case i.Source:
		return source
	case slices.ContainsFunc(s.MACs, is):
		return none
	case slices.ContainsFunc(entries, func(o *attachment.Entry) bool { return o.MAC == i.MAC.String() }):
		return none
	case i.Name == e.Interface || isGateways:
		return impostorMAC
	}
	return none
}

// act removes an interface of a pod, or all on its parent: then the pod has made such interfaces again
// and again. In mode Observe, act only reports.
func (w *Impostors) act(e *attachment.Entry, mode bpf.SourceMode, i pod.Interface, r reason, all bool) error {
	what := fmt.Sprintf("interface %s of the pod has the MAC %s, which is not the pod's", i.Name, i.MAC)
	if r == source {
		what = fmt.Sprintf("interface %s of the pod takes the frames of other hosts (macvlan in mode source)", i.Name)
	}
	if mode == bpf.SourcesObserve {
		w.tell(e, i, what+"; with sourceGuard: Enforce, the agent would remove it")
		return nil
	}
	index, which := i.Index, "it"
	if all {
		index, which = 0, "all interfaces of the pod on "+e.Parent
	}
	var err error
	if all || i.Name == e.Interface {
		err = w.Kill(e)
	}
	// Remove finds the interface by its index and parent, so renaming it does not help the pod.
	if err := errors.Join(err, w.Links.Remove(e.NetNS, e.ParentIndex, index)); err != nil {
		return fmt.Errorf("remove interface %s of pod %s/%s on %s: %w", i.Name, e.PodNamespace, e.PodName, e.Parent, err)
	}
	w.removed[e.ContainerID]++
	w.Removed(string(r))
	w.Log.Error(nil, "an interface of a pod was removed, since it got the frames of others", "pod", e.PodNamespace+"/"+e.PodName,
		"interface", i.Name, "mac", i.MAC.String(), "parent", e.Parent, "reason", r, "removed", which)
	w.Events.Eventf(event.Pod(e.PodNamespace, e.PodName, e.PodUID), nil, corev1.EventTypeWarning, "ImpostorRemoved", "Guard",
		"%s: other pods would lose frames to it; the agent has removed %s; if the pod must use this MAC, allow it by spec.sourceGuardAllow of its pool, and delete the pod",
		what, which)
	return nil
}

// tell reports an interface that stays, now and then.
func (w *Impostors) tell(e *attachment.Entry, i pod.Interface, what string) {
	key := e.ContainerID + "/" + i.Name
	if _, recent := w.told[key]; !recent {
		w.told[key] = w.Clock.Now()
		w.Events.Eventf(event.Pod(e.PodNamespace, e.PodName, e.PodUID), nil, corev1.EventTypeWarning, "ImpostorObserved", "Guard", "%s", what)
	}
}
