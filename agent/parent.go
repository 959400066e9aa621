package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/verify"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

// attachPeriod is how often it is seen to that observers are at the head of
// their parents' chains, where other programs may have got since.
const attachPeriod = 10 * time.Second

// segmentOf opens the segment on which this node reaches a pool. Where neither
// the pool nor a pod here tells, the parent is guessed by the name that it has
// on the last holder's node: an ack may come from there, but silence proves nothing.
func (a *agent) segmentOf(pool *v1alpha1.IPPool, last string) (seg verify.Segment, guessed bool, err error) {
	parents, unknown := a.parents(pool)
	if len(parents) > 0 {
		seg, err := a.segments.Open(parents[0])
		return seg, false, err
	}
	if unknown != nil {
		return nil, false, unknown
	}
	index, exists, err := parentIndex(last)
	if err != nil {
		return nil, false, err
	}
	if exists {
		seg, err := a.segments.Open(index)
		return seg, true, err
	}
	return nil, false, fmt.Errorf("node %s knows no parent of pool %q: name it in the pool's spec.parents; with a spec.vlan the node needs an interface of it", a.node, pool.Name)
}

// parents returns the interfaces that reach a pool, best first: those that the
// pool names, and those that pods of this node hang on, whatever they are called
// by now: alone, with an error, where the others cannot be told now.
func (a *agent) parents(pool *v1alpha1.IPPool) ([]int, error) {
	named, err := namedHere(pool)
	var parents []int
	for _, name := range named {
		index, exists, unknown := parentIndex(name)
		if exists {
			parents = append(parents, index)
		}
		err = errors.Join(err, unknown)
	}
	for e := range a.holders.Bound() {
		for _, address := range e.Addresses {
			if address.Pool == pool.Name && !slices.Contains(parents, e.ParentIndex) && parentExists(e.ParentIndex) {
				parents = append(parents, e.ParentIndex)
			}
		}
	}
	return parents, err
}

// openSegment opens the segment behind a parent at first use.
func (a *agent) openSegment(parent int) (holder.Segment, error) {
	if seg, ok := a.segments.Get(parent); ok {
		return seg, nil
	}
	return a.segments.Open(parent)
}

// parentExists tells whether this node has an interface of an index. What
// cannot be asked exists.
func parentExists(index int) bool {
	_, err := netlink.LinkByIndex(index)
	_, missing := errors.AsType[netlink.LinkNotFoundError](err)
	return !missing
}

// keepAttached sees to the parents from time to time until ctx ends.
func (a *agent) keepAttached(ctx context.Context) error {
	ticker := time.NewTicker(attachPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		a.attachAll()
	}
}

// attachAll puts observers back that were taken off, or lost their place, opens
// the parents of pods again that could not be opened, lest nobody repeat their
// claims (R3), and forgets parents that are gone.
func (a *agent) attachAll() {
	names := map[int]string{}
	for e := range a.holders.Bound() {
		names[e.ParentIndex] = e.Parent
	}
	for _, s := range a.segments.All() {
		names[s.Parent()] = s.Name()
	}
	for parent, name := range names {
		_, err := a.segments.Open(parent)
		if errors.Is(err, bpf.ErrNoDevice) {
			if _, open := a.segments.Get(parent); !open {
				continue // that was told when it went, and its pods' interfaces with it
			}
			a.log.Info("a parent is gone", "parent", name)
			err = a.segments.Forget(parent)
		}
		if err != nil {
			a.log.Info("an observer could not be put back", "parent", name, "why", err.Error())
		}
	}
}
