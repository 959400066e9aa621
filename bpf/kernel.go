// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
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

// Kernel is the open set of maps and attached programs of this node. Its methods and those of its parts may
// be called concurrently. Only one process at a time may have a directory open.
type Kernel struct {
	Guards    *Guards
	Observers *Observers
	Slots     *Slots
	Leases    *Leases
	Sources   *SourceGuard
	Sockets   *Sockets
	Sightings *Sightings
	Ceiling   *Ceiling

	dir   attach.Dir
	noTCX atomic.Bool
	// senders is why the observers do not know whose socket a frame is of, or nil.
	senders error
	reading sync.Mutex // the ring buffer has one reader

	// shared are the maps by name, for loading programs.
	shared   map[string]*ebpf.Map
	maps     *observerMaps
	programs *sharedGuards
	// mu guards the writes to the maps that only user space writes, the pins of observers, and what the parts
	// remember of both.
	mu sync.Mutex
}

// Open creates the maps, or opens the pins of an earlier process. In that case it also replaces the
// programs of every attached link by this version's, with no frame unguarded in between. It looks
// for observers and host links in the calling thread's network namespace.
//
// It returns attach.ErrNotBPFFS if the directory is not on a bpffs, attach.ErrLayout if a map was made
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
	dir, err := attach.OpenDir(o.Dir)
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
func assemble(dir attach.Dir, shared map[string]*ebpf.Map, o Options) (*Kernel, error) {
	m := &observerMaps{}
	if err := (&ebpf.Collection{Maps: maps.Clone(shared)}).Assign(m); err != nil {
		return nil, err
	}
	k := &Kernel{
		dir: dir, shared: shared, maps: m, programs: &sharedGuards{maps: shared, programs: shared[guardMapGuards]},
		Slots: &Slots{m.Slots}, Ceiling: &Ceiling{entry: m.Ceiling},
	}
	k.noTCX.Store(o.NoTCX || !attach.HasTCX())
	allowed := &allowed{bySlot: map[uint32]slotSources{}}
	locals := &locals{maps: m, slots: k.Slots, allowed: allowed, trusted: map[uint32][][3]uint16{}}
	gate := &gate{maps: m, slots: k.Slots}
	k.Leases = &Leases{mu: &k.mu, maps: m, slots: k.Slots, gate: gate, networks: &networks{all: m.Networks, index: m.NetworkIndex}}
	k.Sources = &SourceGuard{mu: &k.mu, maps: m, slots: k.Slots, allowed: allowed, locals: locals}
	k.Sightings = &Sightings{maps: m, leases: k.Leases}
	var err error
	if k.Sockets, err = openSockets(dir, o.Cgroup, shared); err != nil {
		return nil, err
	}
	offsets, err := socketOffsets(ebpf.SchedCLS)
	k.senders = err
	load := func(parent uint32) (attach.Programs, error) { return observerOf(parent, offsets, shared) }
	k.Observers = &Observers{mu: &k.mu, maps: m, locals: locals, pins: dir, noTCX: &k.noTCX, load: load}
	used, err := k.Slots.used()
	if err != nil {
		return nil, err
	}
	if err := k.Sources.inherit(used); err != nil {
		return nil, err
	}
	needed, unrecorded := map[bool]bool{}, map[uint32]bool{}
	for slot, s := range used {
		needed[s.verifies()], unrecorded[slot] = true, true
	}
	if err := k.programs.refresh(needed); err != nil {
		return nil, err
	}
	locks := &slotLocks{}
	k.Guards = &Guards{
		HostLinks: &HostLinks{mu: &k.mu, slots: k.Slots, programs: k.programs, locks: locks, links: map[uint32]hostLink{}},
		dir:       dir, noTCX: &k.noTCX, mu: &k.mu, slots: k.Slots, gate: gate, sockets: k.Sockets, sources: k.Sources,
		shared: shared, programs: k.programs, locks: locks,
		stages: &stages{mu: &k.mu, slots: k.Slots, gate: gate, locals: locals, staged: map[uint32]stagedGuard{}, unrecorded: unrecorded},
	}
	gate.guarded = k.Guards.guarded
	if err := k.Guards.reload(); err != nil {
		return nil, err
	}
	if err := k.Observers.reload(); err != nil {
		return nil, err
	}
	return k, k.Observers.tellMACs()
}

// Senders returns why the observers cannot tell the sockets of pods from those of the node, as on a
// kernel without BTF, or in lockdown. Then a frame with a MAC of the node counts as the node's.
func (k *Kernel) Senders() error { return k.senders }

// PrepareGuards loads the programs that the guards of all pods share, except those of VFs, so that a start
// fails if the kernel refuses them. Otherwise they are loaded for the first pod.
func (k *Kernel) PrepareGuards() error { return k.programs.prepare(false) }

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
	err := errors.Join(k.Guards.removeFilters(), k.removePins(), k.Close())
	if err != nil {
		return fmt.Errorf("remove pins under %s: %w", k.dir, err)
	}
	return nil
}

func (k *Kernel) removePins() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.Observers.removeAllFilters(); err != nil {
		return err
	}
	if err := k.dir.RemoveLinks(); err != nil {
		return err
	}
	if err := k.Slots.free(); err != nil {
		return err
	}
	if err := k.programs.unload(); err != nil {
		return err
	}
	return k.dir.RemoveMaps()
}

// Now returns the current CLOCK_BOOTTIME, the clock of every time in this package.
func Now() time.Duration {
	var ts unix.Timespec
	// CLOCK_BOOTTIME exists since 2.6.39 and the pointer is valid: the call cannot fail.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano())
}
