// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/bpf/enforce"
	"github.com/fenceline/fenceline/bpf/observe"
	"github.com/fenceline/fenceline/bpf/pins"
)

// ProbeMark is the SO_MARK of this node's own probes. The observer reflects them to the parent's
// own children, which would not receive them otherwise, and does not record them as sightings.
const ProbeMark = uint32(observerProbePROBE_MARK)

// Options of Open.
type Options struct {
	// Dir holds the pins. It is on a bpffs that outlives the process. Open creates it.
	Dir string
	// Cgroup is the root of the node's cgroup v2 hierarchy, or the directory in which systemd has it as
	// "unified" beside version 1. Every socket that skips the queue is refused to guarded pods there.
	// Empty: the sockets of pods are not restricted.
	Cgroup string
	// NoTCX keeps guards and observers in filters, as on kernels before 6.6, which have no tcx.
	NoTCX bool
}

// Kernel is the open set of maps and attached programs of this node. Its methods may be called
// concurrently. Only one process at a time may have a directory open.
type Kernel struct {
	dir   pins.Dir
	noTCX atomic.Bool
	// senders is why the observers do not know whose socket a frame is of, or nil.
	senders error

	reading sync.Mutex // the ring buffer has one reader

	*tables
	*enforce.Guards
	*observers
}

// Open creates the maps, or opens the pins of an earlier process. In that case it also replaces the
// programs of every attached link by this version's, with no frame unguarded in between. It looks
// for observers and host links in the calling thread's network namespace.
//
// It returns pins.ErrNotBPFFS if the directory is not on a bpffs, pins.ErrLayout if a map was made
// by a version with another layout.
func Open(o Options) (*Kernel, error) {
	k, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", o.Dir, err)
	}
	return k, nil
}

// HasTCX reports whether guards and observers are in tcx.
func (k *Kernel) HasTCX() bool { return !k.noTCX.Load() }

func open(o Options) (*Kernel, error) {
	dir, err := pins.Open(o.Dir)
	if err != nil {
		return nil, err
	}
	// Kernels before 5.11 count maps against RLIMIT_MEMLOCK.
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("lift the limit of locked memory, which counts maps before Linux 5.11: %w; set agent.extraCapabilities={SYS_RESOURCE} of the chart, or LimitMEMLOCK=infinity of the container runtime's service", err)
	}
	specs, err := mapsOfCode()
	if err != nil {
		return nil, err
	}
	shared, err := dir.OpenMaps(specs)
	if err != nil {
		return nil, err
	}
	k, err := assemble(dir, shared, o)
	if err != nil {
		return nil, errors.Join(err, closeAll(shared))
	}
	return k, nil
}

// assemble takes up what an earlier process has left in the maps and the pins.
func assemble(dir pins.Dir, shared map[string]*ebpf.Map, o Options) (*Kernel, error) {
	t, err := newTables(shared)
	if err != nil {
		return nil, err
	}
	k := &Kernel{dir: dir, tables: t}
	k.noTCX.Store(o.NoTCX || !attach.HasTCX())
	if t.sockets, err = openSockets(dir, o.Cgroup, shared); err != nil {
		return nil, err
	}
	offsets, err := socketOffsets(ebpf.SchedCLS)
	k.senders = err
	load := func(parent uint32) (attach.Programs, error) { return observerOf(parent, offsets, shared) }
	k.observers = &observers{parents: &observe.Parents{Pins: dir, NoTCX: &k.noTCX, Load: load}, tables: t}
	used, err := t.usedSlots()
	if err != nil {
		return nil, err
	}
	if err := t.inheritSources(used); err != nil {
		return nil, err
	}
	needed := map[bool]bool{} // kinds of guards, by their verify
	for _, s := range used {
		needed[s.Flags&slotVerify != 0] = true
	}
	if err := t.guards.Refresh(needed); err != nil {
		return nil, err
	}
	slots := slices.Sorted(maps.Keys(used))
	if k.Guards, err = enforce.Open(dir, &k.noTCX, records{t}, slots); err != nil {
		return nil, err
	}
	t.guardedSlots = k.Guarded
	if err := k.parents.Reload(); err != nil {
		return nil, err
	}
	return k, k.tellMACs()
}

// Senders returns why the observers cannot tell the sockets of pods from those of the node, as on a
// kernel without BTF, or in lockdown. Then a frame with a MAC of the node counts as the node's.
func (k *Kernel) Senders() error { return k.senders }

// PrepareGuards loads the programs that the guards of all pods share, except those of VFs, so that a start
// fails if the kernel refuses them. Otherwise they are loaded for the first pod.
func (k *Kernel) PrepareGuards() error { return k.guards.Prepare(false) }

// Close closes all file descriptors. Pins stay and programs go on enforcing.
func (k *Kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return closeAll(k.shared)
}

func closeAll(shared map[string]*ebpf.Map) error {
	var errs []error
	for _, m := range shared {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// Remove detaches every guard and observer, removes all maps and closes k, for an uninstall.
func (k *Kernel) Remove() error {
	err := errors.Join(k.Guards.RemoveFilters(), k.removePins(), k.Close())
	if err != nil {
		return fmt.Errorf("remove pins under %s: %w", k.dir, err)
	}
	return nil
}

func (k *Kernel) removePins() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.parents.RemoveFilters(); err != nil {
		return err
	}
	if err := k.dir.RemoveLinks(); err != nil {
		return err
	}
	if err := k.freeSlots(); err != nil {
		return err
	}
	if err := k.guards.Unload(); err != nil {
		return err
	}
	return k.dir.RemoveMaps()
}
