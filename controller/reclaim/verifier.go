package reclaim

import (
	"cmp"
	"hash/fnv"
	"iter"
	"slices"
)

// candidates yields those of the nodes that may verify a lease, best first: own, the
// node of the previous holder (it kills the slot, which is positive proof); then
// those that have leases of the same pool and so are on the segment; then the
// others, of which some may reach it. Equals are in an order that differs from
// lease to lease, so that many leases spread over many nodes, and is the same at
// each call.
//
// isAlive and onSegment are asked as late as possible, because each costs a look-up.
func candidates(lease, own string, nodes []string, isAlive, onSegment func(node string) bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		if slices.Contains(nodes, own) && isAlive(own) && !yield(own) {
			return
		}
		var others []string
		for _, node := range spread(lease, nodes) {
			switch {
			case node == own:
			case !onSegment(node):
				others = append(others, node)
			case isAlive(node) && !yield(node):
				return
			}
		}
		for _, node := range others {
			if isAlive(node) && !yield(node) {
				return
			}
		}
	}
}

// firstOf returns the first of the nodes, or "" if there is none.
func firstOf(nodes iter.Seq[string]) string {
	for node := range nodes {
		return node
	}
	return ""
}

// nextAfter returns the node after current, the first one after the last, and "" if
// there is no other than current.
func nextAfter(nodes iter.Seq[string], current string) string {
	var first string
	found := false
	for node := range nodes {
		if found {
			return node
		}
		if first == "" && node != current {
			first = node
		}
		found = node == current
	}
	return first
}

// spread sorts nodes by rendezvous hashing: a node that leaves moves only its own leases.
func spread(lease string, nodes []string) []string {
	type ranked struct {
		node string
		rank uint64
	}
	order := make([]ranked, 0, len(nodes))
	for _, node := range nodes {
		h := fnv.New64a()
		h.Write([]byte(lease)) // hash.Hash never returns an error
		h.Write([]byte{0})
		h.Write([]byte(node))
		order = append(order, ranked{node, mix(h.Sum64())})
	}
	slices.SortFunc(order, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.node, b.node))
	})
	sorted := make([]string, len(order))
	for i, r := range order {
		sorted[i] = r.node
	}
	return sorted
}

// mix is the finalizer of SplitMix64. FNV alone keeps names that differ in the
// last digit close together, which would give all leases to one node.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
