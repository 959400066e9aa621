package bpf

import (
	"context"
	"errors"
	"time"
)

// ProbeMark is the SO_MARK of this node's own probes: the observer sends them back to the parent's own children,
// which would not hear them otherwise, and counts them as nobody's.
const ProbeMark uint32 = 0x464c5031

// Options say where the kernel's part lives.
type Options struct {
	// Dir holds the pins; it must be on a bpffs and is created when missing.
	Dir string
}

// Kernel is the open set of maps and attached programs of this node. Its methods may be called concurrently.
type Kernel struct{}

var errSkeleton = errors.New("not implemented yet")

// Open creates or re-opens the pins.
func Open(o Options) (*Kernel, error) { return nil, errSkeleton }

func (k *Kernel) Close() error                                         { return errSkeleton }
func (k *Kernel) Remove() error                                        { return errSkeleton }
func (k *Kernel) SetKeys(current, previous *ClaimKey) error            { return errSkeleton }
func (k *Kernel) SetNetworks(networks []uint64) error                  { return errSkeleton }
func (k *Kernel) AttachObserver(parent int) error                      { return errSkeleton }
func (k *Kernel) DetachObserver(parent int) error                      { return errSkeleton }
func (k *Kernel) ObserversAttached() (map[int]bool, error)             { return nil, errSkeleton }
func (k *Kernel) AttachGuard(g Guard) error                            { return errSkeleton }
func (k *Kernel) DetachGuard(slot uint32) error                        { return errSkeleton }
func (k *Kernel) GuardAttached(slot uint32) (bool, error)              { return false, errSkeleton }
func (k *Kernel) SweepGuards() ([]uint32, error)                       { return nil, errSkeleton }
func (k *Kernel) KillSlot(slot uint32) error                           { return errSkeleton }
func (k *Kernel) SlotDead(slot uint32) (bool, error)                   { return false, errSkeleton }
func (k *Kernel) InstallLease(key Key, l Lease) error                  { return errSkeleton }
func (k *Kernel) RemoveLease(key Key) error                            { return errSkeleton }
func (k *Kernel) Lease(key Key) (Lease, bool, error)                   { return Lease{}, false, errSkeleton }
func (k *Kernel) Leases() (map[Key]Lease, error)                       { return nil, errSkeleton }
func (k *Kernel) State(key Key) (State, bool, error)                   { return State{}, false, errSkeleton }
func (k *Kernel) Fenced(key Key) (bool, error)                         { return false, errSkeleton }
func (k *Kernel) Sighting(key Key) (Sighting, bool, error)             { return Sighting{}, false, errSkeleton }
func (k *Kernel) Heard(segment uint32) (time.Duration, bool, error)    { return 0, false, errSkeleton }
func (k *Kernel) ReadEvents(ctx context.Context, fn func(Event)) error { return errSkeleton }
func (k *Kernel) Counters() (map[Counter]uint64, error)                { return nil, errSkeleton }
