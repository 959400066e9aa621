// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"fmt"
	"strings"
)

// HazardKind is the kind of a hazard, and a label of the metric.
type HazardKind string

// The kinds.
const (
	XDP     HazardKind = "xdp"
	Offload HazardKind = "l2-fwd-offload"
	Bond    HazardKind = "balance-alb"
	// Filters: without tcx, something is in the place of the observer.
	Filters HazardKind = "filters"
	// Programs of others are no fault: the agent keeps its own before them.
	Programs HazardKind = "programs"
)

// HazardKinds returns all kinds.
func HazardKinds() []HazardKind { return []HazardKind{XDP, Offload, Bond, Filters, Programs} }

// HazardFacts are the facts about a parent.
type HazardFacts struct {
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
	Unread []HazardKind
}

// Hazard is one finding on a parent. Text states its effect and the remedy.
type Hazard struct {
	Kind HazardKind
	Text string
}

// IsFault reports whether an administrator should act.
func (h Hazard) IsFault() bool { return h.Kind != Programs }

// HazardsOf returns the hazards of a parent.
func HazardsOf(f HazardFacts) (all []Hazard) {
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
