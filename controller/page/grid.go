// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/inventory"
	"github.com/fenceline/fenceline/internal/poolset"
)

// letter returns the letter of a state on the page.
func letter(s inventory.State) string {
	switch s {
	case inventory.Conflict:
		return "C"
	case inventory.Free, inventory.Gateway, inventory.Reserved, inventory.Withheld:
		return strings.ToLower(string(s[:1]))
	case inventory.Outside, "":
		return "-"
	}
	return string(s[:1]) // Bound, Warm, Quarantined, Retained
}

const (
	// maxCells bounds a grid. Of a larger pool, such as a /64, only the leases are shown.
	maxCells = 1 << 16
	// alignment makes rows of a grid begin at round addresses.
	alignment = 256
)

// Grid is the state of each address without its lease.
type Grid struct {
	// First is the first address. It is empty if the pool is too large for a grid.
	First string `json:"first,omitempty"`
	Size  uint64 `json:"size"`
	// Runs are pairs of a count and the letter of a state, such as 1-1g254f.
	Runs string `json:"runs"`
}

// GridOf returns the grid of a pool: from its lowest to its highest address, with those of its leases and
// virtual ones, widened to multiples of 256 inside the subnet. A pool that cannot be read has none.
func GridOf(pool *v1alpha1.IPPool, reservations []v1alpha1.ReservedIP, leases []v1alpha1.IPLease) Grid {
	bare := *pool
	bare.Status.InUse = "" // it would be old: the page learns of leases at once
	ground, err := inventory.Of(&bare, nil, reservations)
	if err != nil {
		return Grid{}
	}
	var seen []netip.Addr
	for i := range leases {
		seen = append(seen, leases[i].Spec.Addr())
	}
	virtual := inventory.Virtuals(pool, reservations)
	seen = slices.AppendSeq(seen, maps.Keys(virtual))
	from, to, ok := bounds(ground.Subnet, ground.Set, seen)
	if !ok {
		return Grid{}
	}
	var runs strings.Builder
	state, count := "", 0
	for i, a := uint64(0), from; i <= to; i, a = i+1, a.Next() {
		of := ground.State(a)
		if of == inventory.Outside && virtual[a] != nil { // it need not be among the ips of the pool
			of = inventory.Reserved
		}
		if is := letter(of); is != state {
			writeRun(&runs, count, state)
			state, count = is, 0
		}
		count++
	}
	writeRun(&runs, count, state)
	return Grid{First: from.String(), Size: to + 1, Runs: runs.String()}
}

func writeRun(to *strings.Builder, count int, state string) {
	if count > 0 {
		fmt.Fprintf(to, "%d%s", count, state)
	}
}

// bounds returns the first address of a grid, and the offset of the last one from it. It returns false
// if there is none, or if there are too many.
func bounds(subnet netip.Prefix, all poolset.Set, more []netip.Addr) (first netip.Addr, last uint64, ok bool) {
	var seen []uint64
	note := func(a netip.Addr) {
		if offset, ok := poolset.Offset(subnet, a); ok {
			seen = append(seen, offset)
		}
	}
	if n := all.Len(); n > 0 {
		note(all.At(0))
		note(all.At(n - 1))
	}
	for _, a := range more {
		note(a)
	}
	if len(seen) == 0 {
		return first, 0, false
	}
	from := slices.Min(seen) / alignment * alignment
	to := slices.Max(seen)/alignment*alignment + alignment - 1
	if hosts := subnet.Addr().BitLen() - subnet.Bits(); hosts < 64 {
		to = min(to, 1<<hosts-1)
	}
	if to-from >= maxCells {
		return first, 0, false
	}
	whole, _ := poolset.Parse([]string{subnet.String()})
	return whole.At(from), to - from, true
}
