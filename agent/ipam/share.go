// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/binary"
	"net/netip"
)

// Share is the part of every pool that this node tries first: the addresses whose hash is Index modulo
// Count. Agents with different indexes try different addresses until a share is used up. A Share is a
// hint: a wrong index costs a failed create, and never leads to a duplicate address.
type Share struct{ Index, Count int }

// Has reports whether an address belongs to the share. All agents must use the same hash.
func (s Share) Has(a netip.Addr) bool {
	if s.Count < 2 {
		return true
	}
	b := a.As16()
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	return mix(hi^mix(lo))%uint64(s.Count) == uint64(s.Index)
}

// mix is the finalizer of MurmurHash3: neighbouring addresses get very different hashes.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
