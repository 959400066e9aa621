// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/loop"
)

// Kernel has the parts of a *bpf.Kernel that guards need: KernelOf, or one in memory in tests.
type Kernel struct {
	Guards    KernelGuards
	HostLinks interface {
		Guard(g bpf.Guard, ifname string) error
		Guarded(slot uint32, ifname string) (bool, error)
	}
	Slots interface {
		Dead(slot uint32) (bool, error)
		Used(slot uint32) (bool, error)
	}
	Sockets interface {
		Refuse(slot uint32, netns string) (before bool, err error)
		MayBypass(slot uint32) bool
		Unguarded() error
	}
	Leases KernelLeases
}

// KernelGuards is the part of *bpf.Guards that guards need.
type KernelGuards interface {
	Stage(bpf.Guard) error
	Pin(bpf.Guard) error
	Detach(slot uint32) error
	Attached(slot uint32) (bool, error)
	Sweep() ([]uint32, error)
	Kill(slot uint32) error
}

// KernelLeases is the part of *bpf.Leases that guards need.
type KernelLeases interface {
	Install(bpf.Key, bpf.Lease) error
	Remove(bpf.Key) error
	Lease(bpf.Key) (bpf.Lease, bool, error)
	All() (map[bpf.Key]bpf.Lease, error)
	State(bpf.Key) (bpf.State, bool, error)
	Fenced(bpf.Key) (bool, error)
}

// KernelOf returns the parts of a kernel that guards need.
func KernelOf(k *bpf.Kernel) Kernel {
	return Kernel{Guards: k.Guards, HostLinks: k.Guards.HostLinks, Slots: k.Slots, Sockets: k.Sockets, Leases: k.Leases}
}

// Metrics counts guards that could not be pinned, and those that were put back. It may be called concurrently.
type Metrics interface {
	PinFailed()
	GuardRestored()
}

// Options of Guards. All are required.
type Options struct {
	// Session is the current life of this node, Cluster the UID of the kube-system namespace.
	Session, Cluster string

	Kernel      Kernel
	Attachments *attachment.Table
	// HasDevice reports whether the network namespace at a path has an interface of a VF.
	HasDevice func(netns, device string) (bool, error)

	Events  events.EventRecorder
	Metrics Metrics
	Log     logr.Logger
	Clock   clock.Clock
}

// Guards are the guard programs of this node and the leases that they enforce.
// Its methods may be called concurrently.
type Guards struct {
	Options
	Slots  *Slots
	Leases *Leases

	wake loop.Wake

	// pinning serializes the pins.
	pinning sync.Mutex
	// unpinned has the attachments whose guards could not be pinned as keys.
	unpinned sync.Map
	// missing has the VFs whose guards could not be put back.
	missing atomic.Pointer[map[agentapi.Attachment]bool]
}

// New returns Guards without any slot in use.
func New(o Options) *Guards {
	g := &Guards{Options: o, Slots: newSlots(), wake: loop.NewWake()}
	g.Leases = &Leases{kernel: o.Kernel.Leases, cluster: o.Cluster, alone: g.Alone}
	g.missing.Store(&map[agentapi.Attachment]bool{})
	return g
}

// Of describes the guard of an entry's interface.
func Of(e *attachment.Entry) bpf.Guard {
	return bpf.Guard{
		Slot: e.Slot, Segment: e.ParentIndex, NetNS: e.NetNS, Interface: e.Interface, Index: e.Index, NodeEnd: e.NodeEnd,
		Verify: e.Device != "",
		// The plugin bandwidth adds a qdisc of its own to the node's end, where that of filters would be in its way.
		Living: e.Adopted || e.NodeEnd != 0,
	}
}

// Stage attaches an entry's guard. The guard enforces when Stage returns. Until Pin has succeeded,
// the guard is in filters, which a process in the pod can remove. An entry without an interface
// gets no guard.
func (g *Guards) Stage(e *attachment.Entry) error {
	if e.Unguarded {
		return nil
	}
	return g.Kernel.Guards.Stage(Of(e))
}

// Ensure attaches the guard of an entry unless it is attached. A VF whose interface is gone has none until
// Repair has put it back.
func (g *Guards) Ensure(e *attachment.Entry) error {
	attached, err := g.Attached(e)
	if err != nil || attached {
		return err
	}
	if err = g.Stage(e); e.Device != "" && errors.Is(err, bpf.ErrNoDevice) {
		missing := maps.Clone(*g.missing.Load())
		missing[e.Attachment()] = true
		g.missing.Store(&missing)
	}
	return err
}

// Attached reports whether the guard of an entry is attached. It reports true for an entry without
// an interface, which needs no guard.
func (g *Guards) Attached(e *attachment.Entry) (bool, error) {
	if e.Unguarded {
		return true, nil
	}
	attached, err := g.Kernel.Guards.Attached(e.Slot)
	if err != nil {
		return false, fmt.Errorf("look for the guard of %s: %w", e.Interface, err)
	}
	return attached, nil
}

// GuardSockets refuses the pod of an entry the sockets that skip its guard, as Stage does too. A pod
// that is gone is no error. A socket that is there keeps what it has, so an event names a pod with raw
// sockets.
func (g *Guards) GuardSockets(e *attachment.Entry) error {
	if e.Unguarded || e.NodeEnd != 0 { // no socket skips the node's end of a veth
		return nil
	}
	before, err := g.Kernel.Sockets.Refuse(e.Slot, e.NetNS)
	if before {
		g.Events.Eventf(event.Pod(e.PodNamespace, e.PodName, e.PodUID), nil, corev1.EventTypeWarning, "RawSocketsKept", "Guard",
			"the pod made raw sockets before its node refused those that skip the guard of %s: a socket that skips it goes on until it is closed; delete the pod to end it", e.Interface)
	}
	if err != nil && !errors.Is(err, bpf.ErrNoDevice) {
		return fmt.Errorf("guard the sockets of container %s: %w", e.ContainerID, err)
	}
	return nil
}

// GuardLink guards the node's end of an entry's host link, the interface ifname of this node, by the
// slot of the entry. The guard enforces when GuardLink returns. The guard of the entry's own
// interface must be attached before. Another call replaces the guard of any slot on ifname.
func (g *Guards) GuardLink(e *attachment.Entry, ifname string) error {
	if err := g.Kernel.HostLinks.Guard(Of(e), ifname); err != nil {
		return fmt.Errorf("guard the host link of %s of container %s: %w", e.Interface, e.ContainerID, err)
	}
	return nil
}

// LinkGuarded reports whether ifname, the node's end of a host link, has the guard of the entry.
func (g *Guards) LinkGuarded(e *attachment.Entry, ifname string) (bool, error) {
	guarded, err := g.Kernel.HostLinks.Guarded(e.Slot, ifname)
	if err != nil {
		return false, fmt.Errorf("look for the guard of the host link of %s of container %s: %w", e.Interface, e.ContainerID, err)
	}
	return guarded, nil
}
