// SPDX-License-Identifier: Apache-2.0

package vf

import (
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// Wall is a protection that a PF gives beside the guard.
type Wall string

// The walls. Off: a fenced VF is switched off at its PF, or put into DeadVLAN. SpoofCheck: the VF
// sends from its own MAC only. MAC: the PF has assigned the MAC, so the pod cannot change it.
// Distrust: the VF may not become promiscuous.
const (
	Off        Wall = "off"
	SpoofCheck Wall = "spoof_check"
	MAC        Wall = "mac"
	Distrust   Wall = "distrust"
)

// Walls returns all walls.
func Walls() []Wall { return []Wall{Off, SpoofCheck, MAC, Distrust} }

// DeadVLAN cuts off a VF whose driver cannot switch it off. The VF hears and reaches only this
// VLAN, which IEEE 802.1Q reserves. No interface of a node is in it.
const DeadVLAN = 4095

// isOff reports whether a PF passes no frame from and to a VF.
func isOff(present netlink.VfInfo) bool {
	return present.LinkState == nl.IFLA_VF_LINK_STATE_DISABLE || present.Vlan == DeadVLAN
}

// wanted is the state in which a VF should be at its PF.
type wanted struct {
	// off: its guard is dead, or all its addresses are fenced. alone: it has no guard, so only its
	// PF can silence it.
	off, alone bool
	// checked: it may send from its own MAC only.
	checked bool
}

// isMet reports whether a VF that should be off is off. The link state only tells the VF that its
// link is down. Some cards (ice) do not stop its queues then: only the VLAN silences a VF that a
// program drives.
func (w wanted) isMet(present netlink.VfInfo) bool {
	return present.Vlan == DeadVLAN || !w.alone && isOff(present)
}

// changes returns the walls that are to be set, and what to set.
func changes(present netlink.VfInfo, w wanted) map[Wall]bool {
	todo := map[Wall]bool{}
	if w.off && !w.isMet(present) || !w.off && isOff(present) {
		todo[Off] = w.off
	}
	if w.checked && !present.Spoofchk {
		todo[SpoofCheck] = true
	}
	return todo
}

// missing returns the walls that the PF does not give to a VF after the changes. refused reports
// whether the driver has refused a wall.
func missing(present netlink.VfInfo, w wanted, refused func(Wall) bool) []Wall {
	var all []Wall
	if w.off && !w.isMet(present) || !w.off && refused(Off) {
		all = append(all, Off)
	}
	if w.checked && !present.Spoofchk && refused(SpoofCheck) {
		all = append(all, SpoofCheck)
	}
	if isZero(present.Mac) {
		all = append(all, MAC)
	}
	if present.Trust == 1 {
		all = append(all, Distrust)
	}
	return all
}

func isZero(mac net.HardwareAddr) bool {
	return !slices.ContainsFunc(mac, func(b byte) bool { return b != 0 })
}
