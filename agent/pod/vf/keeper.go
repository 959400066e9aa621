// SPDX-License-Identifier: Apache-2.0

package vf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/loop"
)

// period is the time between two looks at the VFs of pods. A fence wakes the Keeper.
const period = 5 * time.Second

// Options of a Keeper. All but Disabled are required.
type Options struct {
	event.Reporter
	// Session is the current life of this node.
	Session string
	// Disabled: nothing is changed at the PFs.
	Disabled bool
	// Entries returns every entry of the journal; they are read-only. Entry returns one.
	Entries func() []*attachment.Entry
	Entry   func(containerID, ifname string) (attachment.Entry, bool)
	// Silenced reports whether an interface may send from none of its addresses any more.
	Silenced func(*attachment.Entry) (bool, error)
	// Alone reports whether only its PF can silence the VF of an entry. SetHolderSilent tells the kernel whether
	// a VF is off.
	Alone           func(*attachment.Entry) bool
	SetHolderSilent func(e *attachment.Entry, off bool) error
	// OneMAC reports whether an interface may send from its own MAC only.
	OneMAC func(*attachment.Entry) bool
	// Missing sets the number of VFs of pods that lack a wall.
	Missing func(Wall, int)
	// Cards are the PFs of this node.
	Cards Cards
}

// Cards finds and sets VFs at their PFs. The errors of a setting are those of the driver, which may also
// return nil and do nothing. Host implements it.
type Cards interface {
	Find(device string) (Function, error)
	// IsGone reports whether the node has no such device.
	IsGone(device string) bool
	// SetState sets the link state (IFLA_VF_LINK_STATE_*), SetVLAN the VLAN (0: none).
	SetState(f Function, state uint32) error
	SetVLAN(f Function, vlan int) error
	SetSpoofCheck(f Function, on bool) error
}

// Keeper keeps the walls of the VFs of pods at their PFs. Its methods may be called concurrently.
type Keeper struct {
	Options
	wake loop.Wake

	// mu orders the settings of VFs. refused are the walls that the drivers of PFs have refused, by the
	// name of the PF, and told those about which an event was sent.
	mu            sync.Mutex
	refused, told map[ofPF]bool
}

// ofPF is a wall of the VFs of a PF.
type ofPF struct {
	pf string
	Wall
}

// NewKeeper returns a Keeper.
func NewKeeper(o Options) *Keeper {
	return &Keeper{Options: o, wake: loop.NewWake(), refused: map[ofPF]bool{}, told: map[ofPF]bool{}}
}

// Wake makes the next look come at once: a pod was fenced or has got a VF.
func (k *Keeper) Wake() { k.wake.Up() }

// Run keeps the walls until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	if k.Disabled {
		k.switchAllOn()
		return nil
	}
	return loop.Loop{Clock: k.Clock, Period: period, Wake: k.wake}.Every(ctx, func(context.Context) { k.pass() })
}

// switchAllOn switches on the VFs that an agent with walls enabled has switched off. A Bound VF that
// only its PF can silence stays off until DEL: its holder may have lost the address.
func (k *Keeper) switchAllOn() {
	for _, e := range k.Entries() {
		if k.Alone(e) && e.Phase == attachment.Bound {
			continue
		}
		if err := k.Release(e); err != nil {
			k.Log.Error(err, "a VF stays off at its PF; set its state with ip link", "pod", e.PodNamespace+"/"+e.PodName)
		}
	}
}

// pass looks at the VFs of all pods.
func (k *Keeper) pass() {
	lacking := map[Wall]int{}
	for _, e := range k.Entries() {
		if e.Device == "" {
			continue
		}
		missing, err := k.keep(e.Attachment())
		if err != nil && !errors.Is(err, ErrNoVF) {
			k.Log.Error(err, "the walls of a VF are not as they should be; the agent tries again", "pod", e.PodNamespace+"/"+e.PodName, "interface", e.Interface)
		}
		for _, wall := range missing {
			lacking[wall]++
		}
	}
	for _, wall := range Walls() {
		k.Missing(wall, lacking[wall])
	}
}

// keep puts up the walls of a VF that is not being released, and returns those that are missing.
func (k *Keeper) keep(of agentapi.Attachment) ([]Wall, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, ok := k.Entry(of.ContainerID, of.Interface)
	if !ok || e.Phase != attachment.Bound || e.Session != k.Session || k.hasPassedOn(&e) {
		return nil, nil
	}
	f, err := k.Cards.Find(e.Device)
	if err != nil {
		return nil, errors.Join(err, k.SetHolderSilent(&e, false)) // its PF may have lost the setting
	}
	silenced, err := k.Silenced(&e)
	if err != nil {
		return nil, err
	}
	w := wanted{off: silenced, alone: k.Alone(&e), checked: k.OneMAC(&e)}
	if err := k.SetHolderSilent(&e, w.off && w.isMet(f.Info)); err != nil { // no ack once it is on
		return nil, err
	}
	k.apply(f, w.alone, vlanOf(e.ParentIndex), changes(f.Info, w))
	if f, err = k.Cards.Find(e.Device); err != nil {
		return nil, err
	}
	if err := k.SetHolderSilent(&e, w.isMet(f.Info)); err != nil {
		return nil, err
	}
	lacking := missing(f.Info, w, func(wall Wall) bool { return k.refused[ofPF{f.PF.Attrs().Name, wall}] })
	k.tell(f, lacking)
	return lacking, nil
}

// hasPassedOn reports whether a newer pod has the VF of an entry, whose DEL was lost.
func (k *Keeper) hasPassedOn(e *attachment.Entry) bool {
	return slices.ContainsFunc(k.Entries(), func(other *attachment.Entry) bool {
		return other.Device == e.Device && other.Phase == attachment.Bound && other.Session == k.Session && other.Created.After(e.Created)
	})
}

// errStaysOn: the driver has accepted a setting without effect.
var errStaysOn = fmt.Errorf("the PF does not show VLAN %d, although the driver has accepted it", DeadVLAN)

// SwitchOff switches off the VF of an entry that only its PF can silence, and returns nil once the PF says that it
// is off. A VF that is gone sends nothing.
//
// If a newer pod has the VF, or gets it now, the entry has none, and the VF stays as it is.
func (k *Keeper) SwitchOff(e *attachment.Entry) error {
	if slices.ContainsFunc(k.Entries(), func(other *attachment.Entry) bool {
		return other.Device == e.Device && other.Phase != attachment.Releasing && other.Session == k.Session && other.Created.After(e.Created)
	}) {
		return k.SetHolderSilent(e, true)
	}
	if k.Disabled {
		return fmt.Errorf("switch VF %s off: agent.vfWalls is false", e.Device)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	off := wanted{off: true, alone: true}
	f, err := k.Cards.Find(e.Device)
	if err == nil && !off.isMet(f.Info) {
		if err = k.switchOff(f, off.alone); err == nil {
			f, err = k.Cards.Find(e.Device)
		}
		if err == nil && !off.isMet(f.Info) {
			err = errStaysOn
		}
	}
	if err != nil && !k.Cards.IsGone(e.Device) {
		return fmt.Errorf("switch VF %s off: %w", e.Device, err)
	}
	return k.SetHolderSilent(e, true)
}

// Release switches the VF of an entry that ends on again, if it was off. Call it before the entry
// is removed: only the entry names the VF.
func (k *Keeper) Release(e *attachment.Entry) error {
	if e.Device == "" {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.hasPassedOn(e) {
		return nil
	}
	f, err := k.Cards.Find(e.Device)
	if errors.Is(err, ErrNoVF) || errors.Is(err, ErrNoPF) {
		return nil // the VF is gone
	}
	if err == nil && isOff(f.Info) {
		err = k.switchOn(f, vlanOf(e.ParentIndex))
	}
	if err != nil {
		return fmt.Errorf("switch VF %s on again: %w", e.Device, err)
	}
	return nil
}

// apply changes settings, and remembers the walls that the driver refuses. It logs the first
// refusal of a PF. vlan is the VLAN of a VF that is switched on.
func (k *Keeper) apply(f Function, alone bool, vlan int, todo map[Wall]bool) {
	pf := f.PF.Attrs().Name
	for wall, on := range todo {
		err := k.set(f, alone, vlan, wall, on)
		if err == nil {
			delete(k.refused, ofPF{pf, wall})
			k.Log.Info("a wall of a VF was changed at its PF", "pf", pf, "vf", f.Info.ID, "wall", wall, "on", on)
			continue
		}
		if !k.refused[ofPF{pf, wall}] {
			k.Log.Info("the driver of a PF refuses a wall of a VF", "pf", pf, "vf", f.Info.ID, "wall", wall, "on", on, "why", err.Error())
		}
		k.refused[ofPF{pf, wall}] = true
	}
}

func (k *Keeper) set(f Function, alone bool, vlan int, wall Wall, on bool) error {
	switch {
	case wall == SpoofCheck:
		return k.Cards.SetSpoofCheck(f, on)
	case on:
		return k.switchOff(f, alone)
	}
	return k.switchOn(f, vlan)
}

// switchOff cuts off a VF by its state, or else by its VLAN, and returns once the driver reports
// it. With alone, it sets both.
func (k *Keeper) switchOff(f Function, alone bool) error {
	var errs []error
	if err := k.Cards.SetState(f, nl.IFLA_VF_LINK_STATE_DISABLE); err != nil {
		errs = append(errs, fmt.Errorf("state: %w", err))
	} else if !alone {
		return nil
	}
	if err := k.Cards.SetVLAN(f, DeadVLAN); err != nil {
		return errors.Join(append(errs, fmt.Errorf("VLAN %d: %w", DeadVLAN, err))...)
	}
	return nil
}

// switchOn undoes switchOff.
func (k *Keeper) switchOn(f Function, vlan int) (err error) {
	if f.Info.LinkState == nl.IFLA_VF_LINK_STATE_DISABLE {
		err = k.Cards.SetState(f, nl.IFLA_VF_LINK_STATE_AUTO)
	}
	if f.Info.Vlan == DeadVLAN {
		err = errors.Join(err, k.Cards.SetVLAN(f, vlan))
	}
	return err
}

// vlanOf returns the VLAN of a VF by its parent: that of a subinterface, or none.
func vlanOf(parent int) int {
	link, err := netlink.LinkByIndex(parent)
	if sub, ok := link.(*netlink.Vlan); err == nil && ok {
		return sub.VlanId
	}
	return 0
}

// tell reports in an event of the node, once for each wall and PF, that a wall is missing.
func (k *Keeper) tell(f Function, lacking []Wall) {
	pf := f.PF.Attrs().Name
	var news []string
	for _, wall := range lacking {
		if !k.told[ofPF{pf, wall}] {
			k.told[ofPF{pf, wall}] = true
			news = append(news, string(wall))
		}
	}
	if len(news) == 0 {
		return
	}
	slices.Sort(news)
	k.NodeEventf(corev1.EventTypeWarning, "VFWallMissing", "Guard",
		"PF %s does not enforce %s for VF %d; the guard alone restricts the pod there. See docs/sriov.md", pf, strings.Join(news, ", "), f.Info.ID)
}
