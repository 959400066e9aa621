// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/bpf"
)

// Kernel is the access to the kernel programs and their maps: KernelOf, or one in memory in tests. Its
// methods are called concurrently, ReadEvents by one goroutine at a time.
type Kernel struct {
	Observers interface {
		Attach(parent int) error
		SetUplinks(parent int, vid uint16, uplinks []int) error
		Attached() (map[int]bool, error)
		Links(parent int) ([2]uint32, error)
	}
	Leases interface {
		Install(bpf.Key, bpf.Lease) error
		RemoveWatch(bpf.Key) error
		Lease(bpf.Key) (bpf.Lease, bool, error)
		State(bpf.Key) (bpf.State, bool, error)
		Fenced(bpf.Key) (bool, error)
	}
	Slots interface {
		Dead(slot uint32) (bool, error)
	}
	Sightings interface {
		Heard(segment uint32) (time.Duration, bool, error)
		Speakers(segment uint32, v4 bool, limit int) ([]netip.Addr, error)
		Vouched(segment uint32, v4 bool, d time.Duration, limit int) ([]netip.Addr, error)
	}
	Events interface {
		Counters() (map[bpf.Counter]uint64, error)
		ReadEvents(ctx context.Context, fn func(bpf.Event)) error
	}
	Now func() time.Duration
}

// KernelOf returns the parts of a kernel that segments need.
func KernelOf(k *bpf.Kernel) Kernel {
	return Kernel{Observers: k.Observers, Leases: k.Leases, Slots: k.Slots, Sightings: k.Sightings, Events: k, Now: bpf.Now}
}

// parentWire sends frames on a parent: *Parent, or one of a test. Safe for concurrent use.
type parentWire interface {
	Link() (PortLink, error)
	Uplinks() (vid uint16, ports []int, err error)
	Shared() (bool, error)
	Carrier() (up bool, losses uint32, err error)
	Has(netip.Addr) (bool, error)
	SendProbe(frame []byte) error
	Send(frame []byte) error
	Join(netip.Addr) (leave func(), err error)
	Close() error
}

// podPort sends frames from a pod's interface: *Port, or one of a test. One goroutine uses it.
type podPort interface {
	WaitUp(context.Context) error
	Send(frame []byte) error
	Close() error
}
