// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/guard"
	"github.com/fenceline/fenceline/bpf/obey"
)

// tables are the maps that the programs and this process share.
type tables struct {
	*obey.Ceiling
	*sockets

	// shared are the maps by name, for loading programs.
	shared   map[string]*ebpf.Map
	maps     *observerMaps
	networks *obey.Networks
	guards   *guard.Shared

	// mu guards the writes to the maps that only user space writes, the pins of observers, the
	// fields of Guards, and the sources below.
	mu *sync.Mutex
	// guardedSlots returns the slots that guard a device, for the gate. It needs mu.
	guardedSlots func() ([]uint32, error)

	// sources are the allowed sources of the slots with a source guard, and node those of the node.
	// trusted are the MACs of the node's devices, by segment. locals are the entries of both in the kernel, and index is their index.
	sources map[uint32]slotSources
	node    Sources
	trusted map[uint32][][3]uint16
	locals  map[observerLocalKey]uint32
	index   *localIndex
}

func newTables(shared map[string]*ebpf.Map) (*tables, error) {
	m := &observerMaps{}
	if err := (&ebpf.Collection{Maps: maps.Clone(shared)}).Assign(m); err != nil {
		return nil, err
	}
	return &tables{
		Ceiling: obey.NewCeiling(m.Ceiling), networks: obey.NewNetworks(m.Networks, m.NetworkIndex), guards: guard.NewShared(shared),
		shared: shared, maps: m, mu: &sync.Mutex{},
		sources: map[uint32]slotSources{}, trusted: map[uint32][][3]uint16{}, locals: map[observerLocalKey]uint32{},
	}, nil
}

// Now returns the current CLOCK_BOOTTIME, the clock of every time in this package.
func (t *tables) Now() time.Duration {
	var ts unix.Timespec
	// CLOCK_BOOTTIME exists since 2.6.39 and the pointer is valid: the call cannot fail.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano())
}

// SetNetworks sets the networks of this cluster. The networks of installed leases stay too, since a
// pool may be deleted before its pods. The programs pass claims of other networks unchanged. If the
// networks do not all fit, the error is obey.ErrNetworksFull, and the rest is set.
func (t *tables) SetNetworks(networks []uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	wanted := map[uint64]bool{}
	leases, err := t.Leases()
	if err != nil {
		return fmt.Errorf("set networks: %w", err)
	}
	for _, l := range leases {
		if l.held() {
			wanted[l.Network] = true
		}
	}
	for _, n := range networks {
		wanted[n] = true
	}
	return t.networks.Set(wanted)
}

// Heard returns when a valid claim or ack of another node last came in on the segment, with a
// resolution of one second; ok is false if none has ever come in. R2: without such evidence,
// silence proves nothing.
func (t *tables) Heard(segment uint32) (at time.Duration, ok bool, err error) {
	var ns uint64
	ok, err = lookup(t.maps.Hearing, segment, &ns)
	if err != nil {
		return 0, false, fmt.Errorf("read hearing of segment %d: %w", segment, err)
	}
	return time.Duration(ns), ok && ns != 0, nil
}
