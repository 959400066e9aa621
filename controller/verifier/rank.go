// SPDX-License-Identifier: Apache-2.0

package verifier

import (
	"cmp"
	"hash/fnv"
	"iter"
	"slices"
)

// candidates yields the nodes that may verify a lease, best first:
//   - own, the node of the previous holder: it kills the slot, which is positive proof;
//   - the nodes of each group in turn, for which near reports true;
//   - other nodes, some of which may reach the segment.
//
// The order within a group differs from lease to lease, so that many leases spread over many nodes.
// It is the same at each call. isAlive and near are called late, because each call costs a look-up.
func candidates(lease, own string, nodes []string, isAlive func(node string) bool, near ...func(node string) bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		if slices.Contains(nodes, own) && isAlive(own) && !yield(own) {
			return
		}
		others := slices.DeleteFunc(spread(lease, nodes), func(node string) bool { return node == own })
		for _, isNear := range append(near, func(string) bool { return true }) {
			var rest []string
			for _, node := range others {
				switch {
				case !isNear(node):
					rest = append(rest, node)
				case isAlive(node) && !yield(node):
					return
				}
			}
			others = rest
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

// After returns the node after current, or the first node after the last one. It returns "" if
// current is the only node.
func After(nodes iter.Seq[string], current string) string {
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

// spread sorts nodes by rendezvous hashing. If a node leaves, only its own leases move.
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

// mix is the finalizer of SplitMix64. FNV alone gives similar hashes to names that differ in the
// last digit, so one node would get all leases.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
