// SPDX-License-Identifier: Apache-2.0

package lease

// Renewal is the treatment of a fenced address whose lease is still the holder's own: no other pod of
// this cluster has it.
type Renewal int

const (
	// Outrank: another write of the lease gives a token that is newer than the claim. The zero value.
	Outrank Renewal = iota
	// Disprove: this store has never given the token of the claim. No write of the lease gives a
	// newer token now. So the kernel is told to ignore the claimed token, once it is proven that no
	// host speaks by it.
	Disprove
	// GiveWay: the store gave the token and went back since. A pod elsewhere may have the address
	// by that token.
	GiveWay
)

// RenewalOf decides about a fence by a claim. live is the revision of the store now, known the newest
// that this node has read since its boot.
func RenewalOf(claimed, live, known uint64) Renewal {
	switch {
	case claimed <= live:
		return Outrank
	case claimed <= known:
		return GiveWay
	}
	return Disprove
}
