// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// NodeSlices are the parts of a range that nodes have (NodeSlicePool of whereabouts.cni.cncf.io/v1alpha1).
type NodeSlices struct {
	Namespace, Name, Range, Size string
	Slices                       []NodeSlice
}

// NodeSlice is one part. Node is empty if no node has it.
type NodeSlice struct {
	Node  string `json:"nodeName"`
	Range string `json:"sliceRange"`
}

// slicing is how whereabouts divides a range between the nodes: by a NodeSlicePool. The zero value: it does not.
type slicing struct{ pool, size string }

// slice is the part of a range that a node has, and the name of its records.
type slice struct {
	prefix  netip.Prefix
	records string
}

// errSliced: a definition is divided between the nodes, and its parts are not known.
var errSliced = errors.New("node_slice_size is set")

// mostInSlice is how many allocations the records of a slice take: the API server takes 1.5 MB.
const mostInSlice = 1 << 13

// slice has a network give only what nodes have of its range. Whereabouts ignores the rest of its definition then.
func (n *network) slice(c ipamConfig, name string, f Facts) error {
	n.slicing = slicing{cmp.Or(c.NetworkName, name), strings.TrimPrefix(c.NodeSliceSize, "/")}
	if len(n.ranges) != 1 || !n.ranges[0].prefix.Addr().Is4() {
		return fmt.Errorf("%w, and whereabouts divides only one range of IPv4 then", errSliced)
	}
	r := &n.ranges[0]
	all := slices.DeleteFunc(slices.Clone(f.Slices), func(s NodeSlices) bool {
		return s.Name != n.slicing.pool || s.Range != r.prefix.String() || strings.TrimPrefix(s.Size, "/") != n.slicing.size
	})
	if n.isLost = len(all) != 1 && f.isMoving(n.Definition); n.isLost {
		all = []NodeSlices{n.recorded(f.Records)}
	}
	if len(all) != 1 {
		return fmt.Errorf("%w, and there are %d NodeSlicePools %q with %s in parts of /%s: see that the node-slice-controller of whereabouts runs", errSliced, len(all), n.slicing.pool, r.prefix, n.slicing.size)
	}
	if len(r.ips)+len(r.excluded) > 0 {
		n.notes = append(n.notes, fmt.Sprintf("definition %s has node_slice_size, so whereabouts ignores its range_start, range_end and exclude, and so does the pool", n))
	}
	whole := poolset.Set{}
	r.ips, r.excluded, r.gives, n.slicesIn = nil, nil, poolset.Set{}, all[0].Namespace
	for _, s := range all[0].Slices {
		prefix, err := netip.ParsePrefix(s.Range)
		if err != nil {
			return fmt.Errorf("%w, and NodeSlicePool %s has the part %q: %w", errSliced, n.slicing.pool, s.Range, err)
		}
		set, err := poolset.Parse([]string{s.Range})
		switch {
		case err != nil:
			return fmt.Errorf("%w, and NodeSlicePool %s has the part %q: %w", errSliced, n.slicing.pool, s.Range, err)
		case s.Node == "":
			continue
		case set.Len() > mostInSlice || whole.Len() > MaxFiles:
			return fmt.Errorf("%w, and the freeze writes an allocation for each address: %d in a part, or %d in all, are too many; make another network with other addresses, and restart the pods on it", errSliced, set.Len(), whole.Len())
		}
		whole = whole.Plus(set)
		r.gives = r.gives.Plus(set.Minus(poolset.Of(prefix.Addr(), lastOf(prefix))))
		r.slices = append(r.slices, slice{prefix, recordsName(prefix, strings.TrimPrefix(n.networkName+"-"+s.Node, "-"))})
	}
	if r.ips = whole.Entries(); len(r.ips) == 0 && !n.isLost {
		return fmt.Errorf("%w, and NodeSlicePool %s gives no node a part", errSliced, n.slicing.pool)
	}
	return nil
}

// recorded returns the parts of a range by the records of whereabouts. A NodeSlicePool goes with its definition, and the
// records stay.
func (n *network) recorded(all []Records) (of NodeSlices) {
	start := strings.TrimPrefix(n.networkName+"-", "-")
	for _, r := range all {
		p, err := netip.ParsePrefix(r.Range)
		if err != nil || !n.ranges[0].prefix.Contains(p.Addr()) || strconv.Itoa(p.Bits()) != n.slicing.size {
			continue
		}
		name, isWhole := strings.CutSuffix(r.Name, "-"+recordsName(p, ""))
		if node, isOf := strings.CutPrefix(name, start); isWhole && isOf && node != "" {
			of.Namespace, of.Slices = r.Namespace, append(of.Slices, NodeSlice{node, r.Range})
		}
	}
	return of
}

// FrozenSlices returns the frozen text of a definition that whereabouts divides between the nodes, or "" for others.
func FrozenSlices(from v1alpha1.MoveSource, d v1alpha1.MoveDefinition) string {
	n, _ := Facts{From: from}.read(Definition{Namespace: d.Namespace, Name: d.Name, Config: d.Config})
	if n.slicing == (slicing{}) {
		return ""
	}
	text, _ := without(from, d.Config, true, nil)
	return text
}

// AreSliced reports whether whereabouts divides the range of a definition between the nodes.
func (f Facts) AreSliced() bool {
	return slices.ContainsFunc(f.Definitions, func(d Definition) bool {
		n, _ := f.read(d)
		return n.slicing != slicing{}
	})
}

// IsSliced reports whether whereabouts divides the network between the nodes.
func (p Plan) IsSliced() bool {
	return slices.ContainsFunc(p.Changes, func(c Change) bool { return c.isSliced })
}

// freezeSlices plans the allocations of a move, which keep whereabouts from giving addresses of slices, and tells what
// lacks of them. taken are the addresses that have an allocation.
func freezeSlices(p *Plan, f Facts, networks []network, taken []netip.Addr) {
	for _, n := range networks {
		for _, r := range n.ranges {
			for _, s := range r.slices {
				if p.slicesIn = n.slicesIn; !slices.Contains(p.slices, s) {
					p.slices = append(p.slices, s)
				}
			}
			if len(r.slices) > 0 {
				p.freeze = p.freeze.Plus(r.gives)
			}
		}
	}
	for _, of := range f.Records { // also of a node that has gone since
		prefix, err := netip.ParsePrefix(of.Range)
		s := slice{prefix, of.Name}
		isMarked := slices.ContainsFunc(slices.Collect(maps.Values(of.Allocations)), func(a Allocation) bool { return a.ID == Mark(f.Network) })
		if err == nil && isMarked && !slices.Contains(p.slices, s) {
			p.slices = append(p.slices, s)
		}
	}
	if lacks := p.freeze.Minus(poolset.Of(taken...)); lacks.Len() > 0 {
		p.holes = append(p.holes, fmt.Sprintf("the records of whereabouts lack %d allocations of the move, such as that of %s", lacks.Len(), lacks.At(0)))
	}
}

// Marks returns the namespace and the records of the slices of a plan, with an allocation of a move for each address of
// ranges.
func Marks(p Plan, network string, ends []netip.Addr) (namespace string, all []Records) {
	var entries []string
	for pair := range slices.Chunk(ends, 2) {
		entries = append(entries, pair[0].String()+"-"+pair[1].String())
	}
	wanted, _ := poolset.Parse(entries)
	for _, s := range p.slices {
		of := Records{Name: s.records, Range: s.prefix.String(), Allocations: map[string]Allocation{}}
		set, _ := poolset.Parse([]string{of.Range})
		set = set.And(wanted)
		for i := range set.Len() {
			offset, _ := poolset.Offset(s.prefix, set.At(i))
			of.Allocations[strconv.FormatUint(offset, 10)] = Allocation{ID: Mark(network)}
		}
		all = append(all, of)
	}
	return p.slicesIn, all
}
