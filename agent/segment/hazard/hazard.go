// SPDX-License-Identifier: Apache-2.0

// Package hazard finds and reports the things that may hide frames of a parent from the agent's
// programs, or change them: XDP programs, programs of others, offloads, and the mode of a bond.
package hazard

import (
	"fmt"
	"strings"
)

// Kind is the kind of a hazard, and a label of the metric.
type Kind string

// The kinds.
const (
	XDP     Kind = "xdp"
	Offload Kind = "l2-fwd-offload"
	Bond    Kind = "balance-alb"
	// Filters: without tcx, something is in the place of the observer.
	Filters Kind = "filters"
	// Programs of others are no fault: the agent keeps its own before them.
	Programs Kind = "programs"
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{XDP, Offload, Bond, Filters, Programs} }

// Facts are the facts about a parent.
type Facts struct {
	// XDP are the XDP programs of the parent and of the devices below it, which see a frame first.
	XDP []string
	// Others are the programs of others that see the parent's frames.
	Others []string
	// Offload: the device forwards the frames of macvlan interfaces itself.
	Offload bool
	// Rewrites is not nil if a device below the parent changes MACs.
	Rewrites error
	// Blocked is not nil if something is in the place of the observer.
	Blocked error
	// Unread are the kinds that could not be read.
	Unread []Kind
}

// Hazard is one finding on a parent. Text states its effect and the remedy.
type Hazard struct {
	Kind Kind
	Text string
}

// IsFault reports whether an administrator should act.
func (h Hazard) IsFault() bool { return h.Kind != Programs }

// Of returns the hazards of a parent.
func Of(f Facts) (all []Hazard) {
	if len(f.XDP) > 0 {
		all = append(all, Hazard{XDP, fmt.Sprintf(
			"XDP programs see frames before the agent: %s; it neither hears nor fences a frame that they drop or redirect; let them pass ARP, neighbour discovery and claims, or remove them", strings.Join(f.XDP, ", "))})
	}
	if f.Offload {
		all = append(all, Hazard{Offload,
			"l2-fwd-offload is on: the device gives frames to macvlan interfaces past the parent, so the agent hears less; run ethtool -K with l2-fwd-offload off"})
	}
	if f.Rewrites != nil {
		all = append(all, Hazard{Bond, fmt.Sprintf("%s, so ADDs on it are refused; set another mode of the bond, such as active-backup or 802.3ad", f.Rewrites)})
	}
	if f.Blocked != nil {
		return append(all, Hazard{Filters, fmt.Sprintf("the observer cannot be attached: %s", f.Blocked)})
	}
	if len(f.Others) > 0 {
		all = append(all, Hazard{Programs, fmt.Sprintf("programs of others see its frames too: %s; the agent keeps its own before them", strings.Join(f.Others, ", "))})
	}
	return all
}
