// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"sync"

	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/bpf/attach"
)

// Slots are the slots in the kernel's maps. Their lock also guards the fields of Guards.
type Slots interface {
	sync.Locker
	// Check returns an error if there is no slot with this number.
	Check(slot uint32) error
	Record(slot uint32) (Record, error)
	// Load loads the programs of a slot under ProgramName. With verify, they check claims.
	Load(slot uint32, verify bool) (attach.Programs, error)
	// GuardSockets refuses the network namespace of a slot the sockets that skip its guard.
	GuardSockets(slot uint32, netns string) (before bool, err error)
	// Shared returns the maps that all programs share.
	Shared() map[string]*ebpf.Map

	// These need the lock. A killed slot stays dead until Free. Change keeps the rest of a slot.
	Change(slot uint32, r Record) error
	// SetHostLink tells the programs the ifindex of the slot's host link.
	SetHostLink(slot, ifindex uint32) error
	// Kill makes the programs drop every frame of a slot.
	Kill(slot uint32) error
	// Free ends the record of a slot and its sources.
	Free(slot uint32) error
	// Settle lets the programs skip the look for fenced addresses and dead slots if there are none.
	Settle() error
}

// Record is what the programs know of a guard. Without a guard it is zero, unless it was killed.
type Record struct {
	Used    bool
	Segment uint32
	NetNS   uint32 // the inode of the namespace
	Verify  bool
}

// slotLocks has a lock for each slot. Two slots may share one, since it is held for tens of
// milliseconds at most.
type slotLocks [256]sync.Mutex

func (l *slotLocks) lock(slot uint32) (unlock func()) {
	one := &l[slot%uint32(len(l))]
	one.Lock()
	return one.Unlock
}
