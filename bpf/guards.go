// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/bpf/attach"
)

var (
	// ErrPinned is returned by Guards.Stage if the slot guards another living device.
	ErrPinned = errors.New("slot has a living guard on another device")
	// ErrNoGuard is returned by HostLinks.Guard if the slot has no guard.
	ErrNoGuard = errors.New("the slot has no guard: attach it to the pod's interface first")
)

// Guard describes the two programs on one pod interface.
type Guard struct {
	// Slot is unique on the node among living guards, 1 to MaxSlot.
	Slot uint32
	// Segment is the ifindex of the parent in the host's network namespace.
	Segment int
	// NetNS is the path of Interface's network namespace; "" is the calling thread's.
	NetNS string
	// Interface is the pod's device, by name. Index is its ifindex, which a pod cannot change; 0: unknown.
	Interface string
	Index     int
	// NodeEnd is the ifindex of the other end of a pod's veth, in the calling thread's network namespace. The guard
	// is there, before the bridge, where no process in the pod can remove it and no socket skips it. 0: the guard is
	// on Interface.
	NodeEnd int
	// Verify makes the guard verify claims. On an SR-IOV VF no observer sees them.
	Verify bool
	// Living: the device carries traffic already, or the qdisc of filters would be in somebody's way. The guard then
	// goes into pinned links at once, since to add the qdisc switches a device off for a moment (qdisc_graft in the
	// kernel). Without tcx, frames of that moment are lost.
	Living bool
}

// path is the path of the network namespace of the guarded device.
func (g Guard) path() string {
	if g.NodeEnd != 0 {
		return ""
	}
	return g.NetNS
}

// open opens the guarded device.
func (g Guard) open() (*attach.Device, error) {
	if g.NodeEnd != 0 {
		return attach.OpenTurned(g.NodeEnd)
	}
	if g.Index != 0 {
		if dev, err := attach.OpenIndex(g.NetNS, g.Index); !attach.IsGone(err) {
			return dev, err
		}
	}
	return attach.OpenDevice(g.NetNS, g.Interface)
}

// record is what the programs know of the guard. netns is the inode of the pod's namespace.
func (g Guard) record(netns uint32) observerSlot {
	r := observerSlot{Status: slotAlive, Segment: uint32(g.Segment), Netns: netns}
	if g.Verify {
		r.Flags = slotVerify
	}
	return r
}

// podNetNS returns the inode of the pod's namespace. dev is the guarded device.
func (g Guard) podNetNS(dev *attach.Device) (uint32, error) {
	if g.NodeEnd == 0 {
		return dev.NetNS, nil
	}
	return attach.NetNS(g.NetNS)
}

// Guards are the programs on the interfaces of pods. The type attaches them, and sweeps the guards of
// devices that no longer exist. Its methods may be called concurrently.
type Guards struct {
	HostLinks *HostLinks

	dir   attach.Dir
	noTCX *atomic.Bool
	// mu also guards stages and host links.
	mu       *sync.Mutex
	slots    *Slots
	gate     *gate
	sockets  *Sockets
	sources  *SourceGuard
	shared   map[string]*ebpf.Map
	programs *sharedGuards
	stages   *stages
	// locks serialises work on the guard of one slot, which may wait for the kernel. A slot's lock
	// is taken before mu.
	locks *slotLocks
}

// slotLocks has a lock for each slot. Two slots may share one, since it is held for tens of
// milliseconds at most.
type slotLocks [256]sync.Mutex

func (l *slotLocks) lock(slot uint32) (unlock func()) {
	one := &l[slot%uint32(len(l))]
	one.Lock()
	return one.Unlock
}

// reload takes up the guards that an earlier process has pinned, with their programs replaced by this
// version's, in place. It looks for host links in the calling thread's network namespace.
func (gs *Guards) reload() error {
	slots, err := gs.dir.Guards()
	if err != nil {
		return err
	}
	for _, slot := range slots {
		r, err := gs.slots.read(slot)
		if err != nil {
			return err
		}
		load := func() (attach.Programs, error) { return gs.programs.load(slot, r.verifies()) }
		if err := gs.dir.Guard(slot).Reload(load); err != nil {
			return fmt.Errorf("reload guard of slot %d: %w", slot, err)
		}
	}
	if err := gs.HostLinks.reload(); err != nil {
		return fmt.Errorf("reload the guards of host links: %w", err)
	}
	return nil
}

// removeFilters removes the filters of staged guards, and those of host links.
func (gs *Guards) removeFilters() error {
	return errors.Join(gs.stages.removeAll(), gs.HostLinks.removeAll())
}

// Attached reports whether both programs of the slot are attached to an existing device. It
// waits while Pin moves this slot.
func (gs *Guards) Attached(slot uint32) (bool, error) {
	defer gs.locks.lock(slot)()
	attached, err := gs.dir.Guard(slot).Attached()
	if err == nil && !attached {
		attached, err = gs.stages.enforces(slot)
	}
	if err != nil {
		return false, fmt.Errorf("check guard of slot %d: %w", slot, err)
	}
	return attached, nil
}
