// SPDX-License-Identifier: Apache-2.0

package subinterface

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// period is the pause between two passes.
	period = 5 * time.Second
	// unneededFor is how long an unneeded subinterface is kept: a pool may be replaced.
	unneededFor = 5 * time.Minute
)

// ofNetworks is the key of a failure to find the networks. No interface can have this name.
const ofNetworks = "/"

// Node makes and removes interfaces of this node. *Kernel implements it.
type Node interface {
	Links() ([]Link, error)
	// Make makes a subinterface that Links reports as Ours, and sets it up.
	Make(Wanted) error
	SetUp(Link) error
	Remove(Link) error
}

// Options of a Keeper. All but Parents are required.
type Options struct {
	event.Reporter
	// Parents are the interfaces on which the agent may make subinterfaces.
	Parents []string
	// Networks returns the networks of this node. With an error some are missing: none is removed.
	Networks func() ([]Network, error)
	// Used reports whether an interface of a pod has this parent.
	Used   func(index int) bool
	Kernel Node
	// Faults sets the number of subinterfaces that are wanted and cannot be made.
	Faults func(int)
}

// Keeper keeps the subinterfaces of the node.
type Keeper struct {
	Options
	wake loop.Wake
	// unneeded has the start of the time in which nothing needs a subinterface, by its index.
	unneeded map[int]time.Time
	// failures are those that were reported, by the name of the interface.
	failures loop.Told[string]
}

// New returns a Keeper.
func New(o Options) *Keeper {
	return &Keeper{Options: o, wake: loop.NewWake(), unneeded: map[int]time.Time{}, failures: loop.Told[string]{}}
}

// Wake makes Run start a pass at once. It does not block.
func (k *Keeper) Wake() { k.wake.Up() }

// Run keeps the subinterfaces until ctx ends, or until there are none and the agent may make none.
func (k *Keeper) Run(ctx context.Context) error {
	return loop.Loop{Clock: k.Clock, Period: period, Wake: k.wake}.Pace(ctx, func(context.Context) (time.Duration, error) {
		if left := k.Pass(); left || len(k.Parents) > 0 {
			return 0, nil
		}
		return loop.End, nil
	})
}

// Pass makes the changes that the networks need. left: a subinterface of ours may be on the node.
func (k *Keeper) Pass() (left bool) {
	links, err := k.Kernel.Links()
	k.report("", err)
	if err != nil {
		return true
	}
	networks, unknown := k.Networks()
	wanted, refused := Needs(known(networks, k.Parents, links))
	for i, l := range links {
		links[i].Used = l.Used || l.Ours && k.Used(l.Index) // only one of ours may be removed
		left = left || l.Ours
	}
	var failure error
	if unknown != nil && (left || len(k.Parents) > 0) {
		failure = fmt.Errorf("find the networks that need VLAN subinterfaces: %w", unknown)
	}
	k.report(ofNetworks, failure)
	plan := MakePlan(wanted, links)
	maps.Copy(refused, plan.Refused)
	for _, w := range plan.Make {
		if err := k.Kernel.Make(w); err != nil {
			refused[w.Name] = fmt.Errorf("make %s for %s: %w", w.Name, w.Of, err)
			continue
		}
		k.Log.Info("the agent made a VLAN subinterface", "interface", w.Name, "for", w.Of)
		k.NodeEventf(corev1.EventTypeNormal, "SubinterfaceMade", "KeepSubinterfaces", "%s, VLAN %d of %s, for %s", w.Name, w.ID, w.Parent, w.Of)
	}
	for _, l := range plan.SetUp {
		if err := k.Kernel.SetUp(l); err != nil {
			refused[l.Name] = fmt.Errorf("set %s up: %w", l.Name, err)
		}
	}
	if unknown == nil {
		k.remove(plan.Remove, refused)
	}
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		k.report(name, refused[name])
	}
	maps.DeleteFunc(k.failures, func(name, _ string) bool {
		return refused[name] == nil && name != "" && name != ofNetworks
	})
	k.Faults(len(refused))
	return left
}

// remove removes the subinterfaces that nothing has needed for a while.
func (k *Keeper) remove(candidates []Link, failed map[string]error) {
	now, still := k.Clock.Now(), map[int]time.Time{}
	for _, l := range candidates {
		since, known := k.unneeded[l.Index]
		if !known {
			since = now
		}
		still[l.Index] = since
		if now.Sub(since) < unneededFor {
			continue
		}
		if err := k.Kernel.Remove(l); err != nil {
			failed[l.Name] = fmt.Errorf("remove %s, which nothing needs: %w", l.Name, err)
			continue
		}
		delete(still, l.Index)
		k.Log.Info("the agent removed a VLAN subinterface that it had made", "interface", l.Name)
		k.NodeEventf(corev1.EventTypeNormal, "SubinterfaceRemoved", "KeepSubinterfaces", "%s: no network names it, and no pod uses it", l.Name)
	}
	k.unneeded = still
}

// report reports a failure once, and again after a change.
func (k *Keeper) report(name string, failure error) {
	if !k.failures.IsNew(name, failure) {
		return
	}
	k.Log.Error(failure, "the VLAN subinterfaces are not as the networks need them; the agent tries again")
	k.NodeEventf(corev1.EventTypeWarning, "SubinterfaceRefused", "KeepSubinterfaces", "%s", failure)
}
