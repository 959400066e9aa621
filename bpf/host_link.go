// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"sync"

	"github.com/fenceline/fenceline/bpf/attach"
)

// A host link is a second way out of a pod, so its node's end has a guard of the same slot. Filters
// are enough there, since the pod has no access to the node's namespace and the end does not move.

// hostLink is the node's end of a host link that has filters of a slot.
type hostLink struct {
	netns uint32
	index int
}

// HostLinks are the host links that have filters, by slot. Its methods may be called concurrently.
type HostLinks struct {
	mu       *sync.Mutex
	slots    *Slots
	programs *sharedGuards
	locks    *slotLocks // those of Guards
	links    map[uint32]hostLink
}

// Guard guards the node's end of a pod's host link, an interface in the calling thread's network
// namespace. It uses only g.Slot, whose guard must have been staged before. Frames from the pod pass
// only from addresses that are leased to the slot and not fenced, frames to the pod as on its own
// interface; of a dead slot none passes. The filters enforce on return. Another call replaces them,
// also those of another slot or of an earlier version, with no frame unguarded in between. It takes
// about a millisecond.
//
// It returns ErrNoGuard if the slot has no guard, ErrNoDevice if there is no such interface.
func (h *HostLinks) Guard(g Guard, ifname string) error {
	if err := h.guardLink(g.Slot, ifname); err != nil {
		return fmt.Errorf("attach guard of slot %d to the host link %s: %w", g.Slot, ifname, err)
	}
	return nil
}

func (h *HostLinks) guardLink(slot uint32, ifname string) error {
	if err := checkSlot(slot); err != nil {
		return err
	}
	defer h.locks.lock(slot)()
	record, err := h.slots.read(slot)
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
	return h.put(slot, dev, record.verifies())
}

// put puts the programs of a slot on a host link, in place of earlier ones.
func (h *HostLinks) put(slot uint32, dev *attach.Device, verify bool) error {
	programs, err := h.programs.load(slot, verify)
	if err != nil {
		return err
	}
	defer programs.Close() // the filters hold them
	if err := h.record(slot, hostLink{netns: dev.NetNS, index: dev.Index}); err != nil {
		return err
	}
	return dev.AddHostLinkFilters(slot, programs)
}

// Guarded reports whether an interface in the calling thread's network namespace exists and is
// guarded by a slot: both filters are there, are the first ones and have this slot.
func (h *HostLinks) Guarded(slot uint32, ifname string) (guarded bool, err error) {
	dev, err := attach.OpenDevice("", ifname)
	if err == nil {
		defer dev.Close()
		guarded, err = dev.GuardsHostLink(slot)
	}
	if err != nil && !attach.IsGone(err) {
		return false, fmt.Errorf("check guard of slot %d on the host link %s: %w", slot, ifname, err)
	}
	return guarded, nil
}

// record remembers a host link, so that its slot is not freed while the link exists. It also
// writes the ifindex of the link into the slot's record, for the programs.
func (h *HostLinks) record(slot uint32, l hostLink) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.links[slot] = l
	return h.slots.change(slot, func(s *observerSlot) { s.HostLink = uint32(l.index) })
}

// has reports whether the slot still has filters on a host link. It looks for the link in the
// calling thread's network namespace.
func (h *HostLinks) has(slot uint32) (linked bool, err error) {
	h.mu.Lock()
	l, ok := h.links[slot]
	h.mu.Unlock()
	if !ok {
		return false, nil
	}
	dev, err := attach.ReopenDevice("", l.netns, l.index)
	if err == nil {
		defer dev.Close()
		linked, err = dev.HasHostLink(slot)
	}
	if attach.IsGone(err) {
		return false, nil
	}
	return linked, err
}

// reload replaces the programs of all host links in the calling thread's network namespace by this
// version's. A slot that these maps do not know keeps its old programs until Guard is called.
func (h *HostLinks) reload() error {
	return attach.OnHostLinks(func(slot uint32, dev *attach.Device) error {
		record, err := h.slots.read(slot)
		if err == nil && record.Status != slotFree {
			err = h.put(slot, dev, record.verifies())
		}
		if err != nil {
			return fmt.Errorf("reload guard of slot %d on ifindex %d: %w", slot, dev.Index, err)
		}
		return nil
	})
}

// removeAll removes the filters of all host links in the calling thread's network namespace.
func (h *HostLinks) removeAll() error {
	return attach.OnHostLinks(func(_ uint32, dev *attach.Device) error {
		if err := dev.RemoveHostLinkFilters(); err != nil {
			return fmt.Errorf("remove the guard from ifindex %d: %w", dev.Index, err)
		}
		return nil
	})
}
