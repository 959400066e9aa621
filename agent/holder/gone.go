// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/loop"
	"github.com/fenceline/fenceline/internal/owner"
)

const (
	// period is the pause between two passes. An interface is lost if two passes miss it: the end of a
	// sandbox takes the interface a moment before its network namespace.
	period = 5 * time.Second
	// tellInterval is the time after which a loss that lasts is reported again.
	tellInterval = 30 * time.Minute
	// mostNamed bounds the pods that an event of the node names.
	mostNamed = 5
)

// GoneOptions of a Gone. All are required.
type GoneOptions struct {
	event.Reporter
	// Session is the current life of this node.
	Session string
	// Entries returns every entry of the journal; they are read-only.
	Entries func() []*attachment.Entry
	// Has looks for the interface of an entry by its name. Its error wraps pod.ErrNoInterface if the
	// network namespace has none.
	Has func(netns, ifname string) error
	// Guarded reports whether the pod has the guarded device, which it may have renamed.
	Guarded func(*attachment.Entry) (bool, error)
	// ParentExists reports whether the node has an interface with that index.
	ParentExists func(index int) bool
	// Pods reads the pods of this node.
	Pods client.Reader
	// Lost sets the lost interfaces of living pods by parent, and forgets all other parents.
	Lost func(byParent map[string]int)
}

// Gone reports the interfaces that living pods have lost: their parent was removed or
// created again, a virtual function was taken away, or a process deleted the interface. It changes
// nothing: such a pod keeps its addresses until it ends.
//
// Gone looks for interfaces that living pods have lost.
type Gone struct {
	GoneOptions
	// missed has the interfaces that the last pass missed, with the time of their last report.
	missed map[agentapi.Attachment]time.Time
}

// NewGone returns a Gone.
func NewGone(o GoneOptions) *Gone {
	return &Gone{GoneOptions: o, missed: map[agentapi.Attachment]time.Time{}}
}

// Run makes a pass every 5 s until ctx ends.
func (g *Gone) Run(ctx context.Context) error {
	return loop.Loop{Clock: g.Clock, Period: period, Later: true}.Every(ctx, g.Pass)
}

// loss has the pods of one parent whose loss is to be reported.
type loss struct {
	remade bool
	pods   []string
}

// Pass looks once for the interfaces of all pods.
func (g *Gone) Pass(ctx context.Context) {
	missed, lost, losses := map[agentapi.Attachment]time.Time{}, map[string]int{}, map[string]*loss{}
	for _, e := range g.Entries() {
		if e.Phase != attachment.Bound || e.Session != g.Session || e.Mute || !g.misses(ctx, e) {
			continue
		}
		told, again := g.missed[e.Attachment()]
		missed[e.Attachment()] = told
		if !again {
			continue
		}
		lost[e.Parent]++
		if g.Clock.Since(told) < tellInterval {
			continue
		}
		missed[e.Attachment()] = g.Clock.Now()
		l := losses[e.Parent]
		if l == nil {
			l = &loss{remade: !g.ParentExists(e.ParentIndex)}
			losses[e.Parent] = l
		}
		l.pods = append(l.pods, e.PodNamespace+"/"+e.PodName)
		g.tellPod(e, l.remade)
	}
	g.missed = missed
	g.Lost(lost)
	for _, parent := range slices.Sorted(maps.Keys(losses)) {
		g.tellNode(parent, losses[parent])
	}
}

// misses reports whether an entry's pod is known to live without the interface.
func (g *Gone) misses(ctx context.Context, e *attachment.Entry) bool {
	if !errors.Is(g.Has(e.NetNS, e.Interface), pod.ErrNoInterface) {
		return false
	}
	if guarded, err := g.Guarded(e); guarded || err != nil {
		return false
	}
	p := &corev1.Pod{}
	err := g.Pods.Get(ctx, client.ObjectKey{Namespace: e.PodNamespace, Name: e.PodName}, p, client.UnsafeDisableDeepCopy)
	return err == nil && owner.IsUID(p, e.PodUID) && !owner.Ends(p) &&
		p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// why explains a loss. A parent that was created again has its name, but another index.
func why(parent string, remade bool) string {
	if remade {
		return fmt.Sprintf("parent %s was removed or made again", parent)
	}
	return fmt.Sprintf("parent %s is as it was, so the interface alone was deleted or taken away", parent)
}

func (g *Gone) tellPod(e *attachment.Entry, remade bool) {
	var addresses []string
	for _, a := range e.Addresses {
		addresses = append(addresses, a.Addr.String())
	}
	g.Log.Error(nil, "a running pod has lost its interface", "pod", e.PodNamespace+"/"+e.PodName, "interface", e.Interface,
		"why", why(e.Parent, remade))
	g.Events.Eventf(event.Pod(e.PodNamespace, e.PodName, e.PodUID), nil, corev1.EventTypeWarning, "InterfaceGone", "Watch",
		"the pod runs, but has lost its interface %s with %s: %s; delete the pod, so that a new one gets an interface",
		e.Interface, strings.Join(addresses, " and "), why(e.Parent, remade))
}

func (g *Gone) tellNode(parent string, l *loss) {
	slices.Sort(l.pods)
	named, more := l.pods, ""
	if len(named) > mostNamed {
		named, more = named[:mostNamed], " and others with the event InterfaceGone"
	}
	g.NodeEventf(corev1.EventTypeWarning, "InterfaceGone", "Watch",
		"running pods have lost interfaces (%d): %s; delete these pods: %s%s", len(l.pods), why(parent, l.remade), strings.Join(named, ", "), more)
}
