// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// period is the time between two looks at the parents.
	period = 30 * time.Second
	// hazardInterval is the shortest time between two events about one kind of hazard on a parent.
	hazardInterval = 10 * time.Minute
)

// HazardOptions of Hazards. All are required.
type HazardOptions struct {
	event.Reporter
	// Parents returns the names of the parents on which this node listens, by ifindex.
	Parents func() map[int]string
	// Look returns the facts about a parent, and why some cannot be read.
	Look func(parent int) (HazardFacts, error)
	// Present sets whether a parent has a hazard. Forget removes all values of a parent.
	Present func(parent string, kind HazardKind, present bool)
	Forget  func(parent string)
}

// Hazards reports the hazards of the node's parents. Its methods are safe for concurrent use.
type Hazards struct {
	HazardOptions
	mu sync.Mutex
	// found has the hazards that the last look found, and told the last report of each.
	found map[string][]Hazard
	told  map[subject]report
	// unread has the last failure of each parent.
	unread loop.Told[string]
}

type subject struct {
	parent string
	kind   HazardKind
}

type report struct {
	text string
	at   time.Time
}

// NewHazards returns Hazards.
func NewHazards(o HazardOptions) *Hazards {
	return &Hazards{HazardOptions: o, found: map[string][]Hazard{}, told: map[subject]report{}, unread: loop.Told[string]{}}
}

// Run looks at the parents every 30 s until ctx ends.
func (w *Hazards) Run(ctx context.Context) error {
	wait.NonSlidingUntil(w.Pass, period, ctx.Done())
	return nil
}

// Faults returns the texts of the faults that the last look found on a parent.
func (w *Hazards) Faults(parent string) (texts []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.found[parent] {
		if h.IsFault() {
			texts = append(texts, h.Text)
		}
	}
	return texts
}

// Pass looks once at all parents.
func (w *Hazards) Pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := map[string][]Hazard{}
	for index, parent := range w.Parents() {
		facts, err := w.Look(index)
		if w.unread.IsNew(parent, err) {
			w.Log.Info("not everything about a parent could be read", "parent", parent, "why", err.Error())
		}
		found[parent] = keep(HazardsOf(facts), w.found[parent], facts.Unread)
		present := map[HazardKind]bool{}
		for _, h := range found[parent] {
			present[h.Kind] = true
			w.tell(parent, h)
		}
		for _, k := range HazardKinds() {
			w.Present(parent, k, present[k])
			if !present[k] && !slices.Contains(facts.Unread, k) {
				w.ended(subject{parent, k})
			}
		}
	}
	for parent := range w.found {
		if _, lasts := found[parent]; !lasts {
			w.Forget(parent)
			delete(w.unread, parent)
			for _, k := range HazardKinds() {
				w.ended(subject{parent, k})
			}
		}
	}
	w.found = found
}

// keep returns the hazards of a look, and the earlier hazards whose kind could not be read now.
func keep(found, before []Hazard, unread []HazardKind) []Hazard {
	for _, h := range before {
		isSame := func(o Hazard) bool { return o.Kind == h.Kind }
		if slices.Contains(unread, h.Kind) && !slices.ContainsFunc(found, isSame) {
			found = append(found, h)
		}
	}
	return found
}

// tell reports a hazard once, and again after a change.
func (w *Hazards) tell(parent string, h Hazard) {
	last, known := w.told[subject{parent, h.Kind}]
	if known && (last.text == h.Text || w.Clock.Since(last.at) < hazardInterval) {
		return
	}
	w.told[subject{parent, h.Kind}] = report{h.Text, w.Clock.Now()}
	w.Log.Info("something else works on the frames of a parent", "parent", parent, "kind", h.Kind, "what", h.Text)
	kind, reason := corev1.EventTypeWarning, "ParentHazard"
	if !h.IsFault() {
		kind, reason = corev1.EventTypeNormal, "ParentShared"
	}
	w.NodeEventf(kind, reason, "Watch", "parent %s: %s", parent, h.Text)
}

// ended keeps the time of the last report, so that a hazard that comes and goes makes few events.
func (w *Hazards) ended(s subject) {
	if last, known := w.told[s]; known {
		w.told[s] = report{at: last.at}
	}
}
