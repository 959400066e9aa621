// SPDX-License-Identifier: Apache-2.0

// Package parent finds the parents of this node: the interfaces on which it reaches a pool. It
// keeps the observers on them in place.
package parent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/diagnosis"
)

// attachPeriod is how often the observers are put back at the head of their parents' chains. Other
// programs may have been attached before the observers.
const attachPeriod = 10 * time.Second

// Parents is the set of parents of this node. Safe for concurrent use.
type Parents struct {
	// Node is the name of this node.
	Node string
	// Bound yields the journal entries of the pod interfaces that hold addresses now.
	Bound    func() iter.Seq[*attachment.Entry]
	Segments *segment.Segments
	// Pools reads pools from the cache.
	Pools client.Reader
	// Configured is the network configuration of this node.
	Configured Network
	// Sightings are the frames that the observers of this node have recorded.
	Observers Observers
	Sightings Sightings
	// Tell reports pods that run on another parent than new ones would.
	Tell func(diagnosis.Misplaced)
	Log  logr.Logger

	// told are the kinds of misplaced pods that were reported. Only Run uses it.
	told map[string]bool
}

// Segment opens the segment on which this node reaches an address of a pool. The parent is, best
// first, one on which this node has heard the last holder, one that the pool names, or one of the
// pool's pods on this node. Otherwise the parent is guessed by its name on the last holder's node: an
// ack may come from there, but silence proves nothing.
//
// A heard frame may be forged. If the pool names parents, such a frame only chooses between these
// and the parents of the pool's pods (R1).
func (p *Parents) Segment(pool *v1alpha1.IPPool, last segment.LastHolder) (seg *segment.Segment, guessed bool, err error) {
	parents, unknown := p.of(pool)
	heard, err := p.heard(last)
	if err != nil {
		return nil, false, err
	}
	if len(pool.Spec.Parents) > 0 || p.isElsewhereToo(pool, last.Addr) {
		heard = slices.DeleteFunc(heard, func(parent int) bool { return !slices.Contains(parents, parent) })
	}
	if index, ok := choose(parents, heard); ok {
		seg, err := p.Segments.Open(index)
		return seg, false, err
	}
	if unknown != nil {
		return nil, false, unknown
	}
	index, exists, err := Index(last.Parent)
	if err != nil {
		return nil, false, err
	}
	if exists {
		seg, err := p.Segments.Open(index)
		return seg, true, err
	}
	return nil, false, fmt.Errorf("node %s knows no parent of pool %q: it has never heard the last holder, has no pod of the pool, and has no interface that the pool names or that is called %q. Name the parent in the pool's spec.parents; with a spec.vlan the node needs an interface of it", p.Node, pool.Name, last.Parent)
}

// choose returns the parent on which an address is verified. said are the parents that the pool
// names or that its pods on this node use, best first. heard are the parents on which the last
// holder was heard. A parent of both comes first, then one of heard, then one of said. ok is false
// if both are empty.
func choose(said, heard []int) (index int, ok bool) {
	for _, parent := range said {
		if slices.Contains(heard, parent) {
			return parent, true
		}
	}
	if all := append(slices.Clone(heard), said...); len(all) > 0 {
		return all[0], true
	}
	return 0, false
}

// of returns the interfaces that reach a pool, best first: the interfaces that the pool names, then
// the parents of this node's pods, by index, since an interface may have been renamed. If a named
// interface cannot be looked up now, of returns an error together with the parents that it found.
func (p *Parents) of(pool *v1alpha1.IPPool) ([]int, error) {
	named, err := Named(pool)
	var parents []int
	for _, name := range named {
		index, exists, unknown := Index(name)
		if exists {
			parents = append(parents, index)
		}
		err = errors.Join(err, unknown)
	}
	for e := range p.Bound() {
		for _, address := range e.Addresses {
			if address.Pool == pool.Name && !slices.Contains(parents, e.ParentIndex) && Exists(e.ParentIndex) {
				parents = append(parents, e.ParentIndex)
			}
		}
	}
	return parents, err
}

// Run keeps the observers attached, and reports misplaced pods, until ctx ends.
func (p *Parents) Run(ctx context.Context) error {
	wait.NonSlidingUntil(func() { p.attach(); p.tell() }, attachPeriod, ctx.Done())
	return nil
}

// attach puts back the observers that were detached or lost their place. It opens the parents of
// pods that could not be opened before, because only an open segment repeats their claims (R3), and
// forgets parents that are gone. It opens the configured parents before the first pod: a node can
// verify only addresses whose holders it has heard.
func (p *Parents) attach() {
	for parent, name := range p.Names() {
		_, err := p.Segments.Open(parent)
		if errors.Is(err, bpf.ErrNoDevice) {
			if _, open := p.Segments.Get(parent); !open {
				continue // logged when it was removed; its pods' interfaces are gone with it
			}
			p.Log.Info("the parent was removed from the node", "parent", name)
			err = p.Segments.Forget(parent)
		}
		if err != nil {
			p.Log.Info("the observer could not be attached again", "parent", name, "why", err.Error())
		}
	}
}

// Names returns the names of the parents that should have an observer, by ifindex: those that the
// network configuration names, those of pods, and those that are open.
func (p *Parents) Names() map[int]string {
	names := map[int]string{}
	for _, name := range p.Configured.Masters {
		index, exists, err := master(name)
		if err != nil {
			p.Log.Info("a parent of the network configuration could not be looked for", "parent", name, "why", err.Error())
		}
		if exists {
			names[index] = nameOf(index, name)
		}
	}
	for e := range p.Bound() {
		names[e.ParentIndex] = e.Parent
	}
	maps.Copy(names, p.Segments.Names())
	return names
}
