// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
)

// iface is a pod's interface while an ADD works on it: its guard, its MAC and its intent on disk.
type iface struct {
	a    *Acquirer
	call agentapi.AddRequest
	// who, link and seg: see Request. The MAC is the present one.
	who  v1alpha1.Holder
	link pod.Interface
	seg  Segment
	// won are the addresses that the interface has so far, in the order of the families.
	won []Won
	// trying is the address of the present family that the ADD tries. A lease of it may exist.
	trying *attachment.Address
	// slot of the guard; 0 before the first intent.
	slot uint32
	// muting are the dead slots that keep the interface mute.
	muting  []uint32
	created time.Time
	// made is the MAC that the plugin gave the interface, and macs are those that the pod chose for addresses.
	made net.HardwareAddr
	macs map[netip.Addr]net.HardwareAddr
	// sharedMAC: a holder on another node may have the same MAC.
	sharedMAC bool
	// staging receives the result of attaching the guard. guarded is true once the guard enforces.
	staging <-chan error
	guarded bool
}

// newIface returns the interface of an ADD that begins now.
func newIface(a *Acquirer, r Request) *iface {
	return &iface{
		a: a, call: r.Call, who: r.Holder, link: r.Link, seg: r.Segment, muting: r.Muting, made: r.Link.MAC, macs: r.Choice.MACs, created: a.Clock.Now(),
	}
}

// entry is the journal's record of the ADD.
func (i *iface) entry(phase attachment.Phase) attachment.Entry {
	e := attachment.Entry{
		ContainerID: i.call.ContainerID, Interface: i.call.Interface, Index: i.link.Index,
		NetNS: i.call.NetNS, Network: i.call.Network.Name,
		PodNamespace: i.who.Namespace, PodName: i.who.Pod, PodUID: i.who.PodUID, Machine: owner.MachineOf(&i.who),
		Phase: phase, Session: i.a.Self.Session, Slot: i.slot, Created: i.created,
		Parent: i.link.Parent.Name, ParentIndex: i.link.Parent.Index, MAC: i.who.MAC, SharedMAC: i.sharedMAC,
		NodeEnd: i.link.NodeEnd, Device: i.link.Device, Unguarded: i.link.Unguarded, Settled: i.link.Unguarded,
	}
	for _, w := range i.won {
		e.Addresses = append(e.Addresses, w.Address)
	}
	if i.trying != nil {
		e.Addresses = append(e.Addresses, *i.trying)
	}
	return e
}

// journal writes the intent of the ADD before its next write to the API server. It
// begins to attach the guard with its sources, and to check the observer. The interface is down
// while IPAM runs: the guard is there before the first frame.
func (i *iface) journal() error {
	if i.slot == 0 {
		slot, err := i.a.Guards.Slots.Take()
		if err != nil {
			return err
		}
		i.slot = slot
	}
	e := i.entry(attachment.Intent)
	if err := i.a.Attachments.Put(e); err != nil {
		i.returnSlot()
		return err
	}
	if i.staging == nil && !i.guarded {
		staging, seg := make(chan error, 1), i.seg
		i.staging = staging
		go func() {
			err := i.a.Guards.Stage(&e)
			if err == nil && !e.SharedMAC { // the next candidate would have another MAC
				err = i.a.GuardSources(&e) // beside the write, as this takes some time; see record
			}
			if err == nil {
				err = seg.Observe()
			}
			staging <- err
		}()
	}
	return nil
}

// put journals that the interface holds its addresses.
func (i *iface) put(e attachment.Entry) error {
	accepts := func(a attachment.Address) bool {
		return a.PoolThen().Spec.RouterAdvertisements == v1alpha1.RoutersAccepted
	}
	if !e.Unguarded && !slices.ContainsFunc(e.Addresses, accepts) {
		if err := i.a.Links.IgnoreRouters(e.NetNS, e.Interface); err != nil {
			return err
		}
	}
	return i.a.Attachments.Put(e)
}

// returnSlot returns a slot whose guard was never attached. If the undo killed the slot, it would
// be lost, because no sweep would ever see that its device is gone.
func (i *iface) returnSlot() {
	if i.staging == nil && !i.guarded {
		i.a.Guards.Slots.PutBack(i.slot)
		i.slot = 0
	}
}

// guard waits until the guard enforces. Installing, probing and answering come after it.
func (i *iface) guard() error {
	if i.guarded {
		return nil
	}
	if i.staging == nil {
		if err := i.journal(); err != nil {
			return err
		}
	}
	err := i.awaitGuard()
	for errors.Is(err, bpf.ErrPinned) {
		// The guard has outlived its entry in the journal. The sweep frees the slot.
		i.a.Guards.Slots.Leave(i.slot)
		i.slot = 0
		if err = i.journal(); err == nil {
			err = i.awaitGuard()
		}
	}
	for err == nil && len(i.muting) > 0 {
		// The dead slot of the earlier ADD or try would keep the interface mute.
		if err = i.a.Guards.Kernel.Guards.Detach(i.muting[0]); err == nil {
			i.muting = i.muting[1:]
		}
	}
	if err != nil {
		return fmt.Errorf("guard %s of pod %s/%s: %w", i.who.Interface, i.who.Namespace, i.who.Pod, err)
	}
	i.guarded = true
	return nil
}

// awaitGuard waits for the guard that is being attached, if there is one.
func (i *iface) awaitGuard() error {
	if i.staging == nil {
		return nil
	}
	err := <-i.staging
	i.staging = nil
	return err
}

// mutes returns the dead slots that keep the interface mute after the undo of a try: those that
// were left before, and its own, if the guard is still there.
func (i *iface) mutes() ([]uint32, error) {
	if i.slot == 0 || i.link.Unguarded {
		return i.muting, nil
	}
	e := i.entry(attachment.Intent)
	attached, err := i.a.Guards.Attached(&e)
	if err == nil && attached {
		return append(i.muting, i.slot), nil
	}
	return i.muting, err
}

// undo is a DEL of the steps done so far. A release that fails is journalled and left to recovery: it
// is no error of the ADD.
func (i *iface) undo() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(i.a.Background), attachment.UndoTimeout)
	defer cancel()
	// The slot is killed whether or not the guard was attached.
	_ = i.awaitGuard()
	if err := i.a.Releaser.Release(ctx, i.entry(attachment.Intent)); err != nil {
		i.a.Releaser.Later(i.call.Attachment, "undo of an ADD", err)
	}
	i.restoreMAC()
}
