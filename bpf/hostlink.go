// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"

	"github.com/fenceline/fenceline/bpf/attach"
)

// A host link is a second way out of a pod, so its node's end has the guard of the same slot. The
// frames are judged by the very programs of the pod's interface: the verifier takes tens of
// milliseconds for another pair. They run in filters, which are enough there: the end is in the
// node's namespace, to which the pod has no access, and it does not move.

// hostLink is the node's end of a host link that has filters of a slot.
type hostLink struct {
	netns uint32
	index int
}

// GuardLink guards the node's end of a pod's host link, an interface in the calling thread's network
// namespace. It uses only g.Slot, whose guard must have been staged before. Frames from the pod pass
// only from addresses that are leased to the slot and not fenced, frames to the pod as on its own
// interface; of a dead slot none passes. The filters enforce on return. Another call replaces them,
// also those of another slot or of an earlier version, with no frame unguarded in between. It takes
// about a millisecond.
//
// It returns ErrNoGuard if the slot has no guard, ErrNoDevice if there is no such interface.
func (gs *guards) GuardLink(g Guard, ifname string) error {
	if err := gs.guardLink(g.Slot, ifname); err != nil {
		return fmt.Errorf("attach guard of slot %d to the host link %s: %w", g.Slot, ifname, err)
	}
	return nil
}

func (gs *guards) guardLink(slot uint32, ifname string) error {
	if err := checkSlot(slot); err != nil {
		return err
	}
	defer gs.locks.lock(slot)()
	record, err := gs.tables.slot(slot)
	if err != nil {
		return err
	}
	if record.Status == slotFree {
		return ErrNoGuard
	}
	dev, err := attach.OpenDevice("", ifname)
	if err != nil {
		return err
	}
	defer dev.Close()
	programs, err := gs.programsOf(slot, record)
	if err != nil {
		return err
	}
	defer programs.Close() // the filters hold them
	if err := gs.recordLink(slot, hostLink{netns: dev.NetNS, index: dev.Index}); err != nil {
		return err
	}
	return dev.AddHostLinkFilters(slot, programs)
}

// LinkGuarded reports whether an interface in the calling thread's network namespace is guarded by a
// slot: both filters are there, are the first ones and have this slot. It returns false if there is
// no such interface.
func (gs *guards) LinkGuarded(slot uint32, ifname string) (bool, error) {
	guarded, err := linkGuarded(slot, ifname)
	if err != nil && !attach.IsGone(err) {
		return false, fmt.Errorf("check guard of slot %d on the host link %s: %w", slot, ifname, err)
	}
	return guarded, nil
}

func linkGuarded(slot uint32, ifname string) (bool, error) {
	dev, err := attach.OpenDevice("", ifname)
	if err != nil {
		return false, err
	}
	defer dev.Close()
	return dev.GuardsHostLink(slot)
}

// programsOf returns this version's programs of a slot, which the caller closes: those of its stage
// or its pinned links, or else a new pair.
func (gs *guards) programsOf(slot uint32, record observerSlot) (attach.Programs, error) {
	if s, ok := gs.stages.of(slot); ok && len(s.programs) == len(attach.Directions) {
		return s.programs.Clone()
	}
	programs, err := gs.dir.guard(slot).Programs()
	if err != nil || programs != nil {
		return programs, err
	}
	return gs.loadGuardPair(slot, record)
}

// recordLink remembers a host link, so that its slot is not freed while the link exists. It also
// writes the ifindex of the link into the slot's record, for the programs.
func (gs *guards) recordLink(slot uint32, l hostLink) error {
	gs.tables.mu.Lock()
	defer gs.tables.mu.Unlock()
	gs.links[slot] = l
	record, err := gs.tables.slot(slot)
	if err != nil || record.HostLink == uint32(l.index) {
		return err
	}
	record.HostLink = uint32(l.index)
	return gs.tables.putSlot(slot, record)
}

// linked reports whether the slot still has filters on a host link. It looks for the link in the
// calling thread's network namespace.
func (gs *guards) linked(slot uint32) (bool, error) {
	gs.tables.mu.Lock()
	l, ok := gs.links[slot]
	gs.tables.mu.Unlock()
	if !ok {
		return false, nil
	}
	dev, err := attach.ReopenDevice("", l.netns, l.index)
	if err == nil {
		defer dev.Close()
		ok, err = dev.HasHostLink(slot)
	}
	if err != nil {
		if attach.IsGone(err) {
			err = nil
		}
		return false, err
	}
	return ok, nil
}

// reloadHostLinks replaces the programs of all host links in the calling thread's network namespace
// by this version's, after those of the pods' interfaces. A slot that these maps do not know keeps
// its old programs until GuardLink is called.
func (gs *guards) reloadHostLinks() error {
	slots, netns, err := attach.HostLinks()
	if err != nil {
		return err
	}
	for index, slot := range slots {
		if err := gs.reloadHostLink(slot, hostLink{netns: netns, index: index}); err != nil && !attach.IsGone(err) {
			return fmt.Errorf("reload guard of slot %d on ifindex %d: %w", slot, index, err)
		}
	}
	return nil
}

func (gs *guards) reloadHostLink(slot uint32, l hostLink) error {
	record, err := gs.tables.slot(slot)
	if err != nil || record.Status == slotFree {
		return err
	}
	dev, err := attach.ReopenDevice("", l.netns, l.index)
	if err != nil {
		return err
	}
	defer dev.Close()
	programs, err := gs.programsOf(slot, record)
	if err != nil {
		return err
	}
	defer programs.Close()
	if err := gs.recordLink(slot, l); err != nil {
		return err
	}
	return dev.AddHostLinkFilters(slot, programs)
}

// removeHostLinks removes the filters of all host links in the calling thread's network namespace.
func (gs *guards) removeHostLinks() error {
	slots, netns, err := attach.HostLinks()
	if err != nil {
		return err
	}
	for index := range slots {
		if err := removeHostLink(hostLink{netns: netns, index: index}); err != nil && !attach.IsGone(err) {
			return fmt.Errorf("remove the guard from ifindex %d: %w", index, err)
		}
	}
	return nil
}

func removeHostLink(l hostLink) error {
	dev, err := attach.ReopenDevice("", l.netns, l.index)
	if err != nil {
		return err
	}
	defer dev.Close()
	return dev.RemoveHostLinkFilters()
}
