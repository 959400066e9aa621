package ipam

import "net/netip"

// Share is the part of every pool that this node tries first: the addresses
// that hash to Index among Count agents. Agents with different indexes do
// not meet until a share is used up. A Share is a hint: wrong indexes cost
// collisions, never duplicates.
type Share struct{ Index, Count int }

// Has tells whether an address belongs to the share. All agents must agree on it.
func (s Share) Has(a netip.Addr) bool {
	if s.Count < 2 {
		return true
	}
	hi, lo := halves(a)
	return mix(hi^mix(lo))%uint64(s.Count) == uint64(s.Index)
}

// mix is the finalizer of MurmurHash3: neighbouring addresses land far apart.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
