// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"sort"
)

// Set is an immutable set of addresses of both families, IPv4 first. It stores sorted spans, so an
// IPv6 subnet costs as little as an IPv4 subnet. The zero value is empty. Safe for concurrent use.
type Set struct {
	spans []span
	// starts[i] is the number of addresses before spans[i], at most MaxUint64.
	starts []uint64
	len    uint64
}

// span is a closed interval of addresses of one family.
type span struct{ from, to netip.Addr }

// Len returns the number of addresses, or MaxUint64 when there are more.
func (s Set) Len() uint64 { return s.len }

// Count is Len for the status of a record: at most MaxInt64.
func (s Set) Count() int64 { return int64(min(s.len, math.MaxInt64)) }

// Contains reports whether a is in the set. A v4-mapped IPv6 address counts as IPv4.
func (s Set) Contains(a netip.Addr) bool {
	a = a.Unmap()
	i := s.spanAfter(a) - 1
	return i >= 0 && a.Compare(s.spans[i].to) <= 0
}

// At returns the address at position i in ascending order. Like a slice, it panics if i is not less
// than Len.
func (s Set) At(i uint64) netip.Addr {
	if i >= s.len {
		panic("poolset: position beyond the end of the set")
	}
	n := sort.Search(len(s.starts), func(n int) bool { return s.starts[n] > i }) - 1
	return advance(s.spans[n].from, i-s.starts[n])
}

// Rank returns the number of addresses of the set that are less than a, at most MaxUint64. The address
// a need not be in the set. Of those in the set it is the inverse of At.
func (s Set) Rank(a netip.Addr) uint64 {
	a = a.Unmap()
	i := s.spanAfter(a) - 1
	if i < 0 {
		return 0
	}
	sp := s.spans[i]
	if a.Compare(sp.to) > 0 {
		return saturate(s.starts[i], size(sp))
	}
	return saturate(s.starts[i], distance(sp.from, a))
}

// Minus returns the addresses of s that are not in o.
func (s Set) Minus(o Set) Set {
	left := make([]span, 0, len(s.spans)+len(o.spans))
	for _, sp := range s.spans {
		from, open := sp.from, true
		for _, cut := range o.spans[max(0, o.spanAfter(sp.from)-1):] {
			if cut.from.Compare(sp.to) > 0 {
				break
			}
			if cut.to.Compare(from) < 0 {
				continue
			}
			if cut.from.Compare(from) > 0 {
				left = append(left, span{from, cut.from.Prev()})
			}
			if cut.to.Compare(sp.to) >= 0 {
				open = false
				break
			}
			from = cut.to.Next()
		}
		if open {
			left = append(left, span{from, sp.to})
		}
	}
	return newSet(left)
}

// And returns the addresses that are in both sets.
func (s Set) And(o Set) Set { return s.Minus(s.Minus(o)) }

// Plus returns the addresses that are in one of the sets.
func (s Set) Plus(o Set) Set { return newSet(slices.Concat(s.spans, o.spans)) }

// Entries returns the set as ranges and single addresses, in ascending order. Parse reads them.
func (s Set) Entries() []string {
	entries := make([]string, len(s.spans))
	for i, sp := range s.spans {
		entries[i] = sp.from.String()
		if sp.from != sp.to {
			entries[i] += "-" + sp.to.String()
		}
	}
	return entries
}

// Ends returns the first and the last address of each range, in ascending order.
func (s Set) Ends() []netip.Addr {
	ends := make([]netip.Addr, 0, 2*len(s.spans))
	for _, sp := range s.spans {
		ends = append(ends, sp.from, sp.to)
	}
	return ends
}

// Equal reports whether the two sets have the same addresses.
func (s Set) Equal(o Set) bool { return slices.Equal(s.spans, o.spans) }

// Overlaps reports whether the two sets have an address in common.
func (s Set) Overlaps(o Set) bool {
	for i, j := 0, 0; i < len(s.spans) && j < len(o.spans); {
		switch {
		case s.spans[i].to.Compare(o.spans[j].from) < 0:
			i++
		case o.spans[j].to.Compare(s.spans[i].from) < 0:
			j++
		default:
			return true
		}
	}
	return false
}

// spanAfter returns the index of the first span that begins above a.
func (s Set) spanAfter(a netip.Addr) int {
	return sort.Search(len(s.spans), func(n int) bool { return s.spans[n].from.Compare(a) > 0 })
}

// newSet sorts and joins spans, which it may overwrite. It leaves v4-mapped addresses out: no host can
// have one.
func newSet(spans []span) Set {
	spans = withoutMapped(spans)
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	s := Set{spans: spans[:0]}
	for _, sp := range spans {
		if last := len(s.spans) - 1; last >= 0 && touches(s.spans[last], sp) {
			if sp.to.Compare(s.spans[last].to) > 0 {
				s.spans[last].to = sp.to
			}
			continue
		}
		s.spans = append(s.spans, sp)
	}
	s.starts = make([]uint64, len(s.spans))
	for i, sp := range s.spans {
		s.starts[i] = s.len
		s.len = saturate(s.len, size(sp))
	}
	return s
}

// withoutMapped cuts v4-mapped addresses (RFC 4291, section 2.5.5.2) out of spans that do not begin
// with one. It may overwrite spans.
func withoutMapped(spans []span) []span {
	mapped := prefixSpan(netip.MustParsePrefix("::ffff:0:0/96"))
	for i, sp := range spans {
		if sp.from.Is4() || !sp.from.Less(mapped.from) || sp.to.Less(mapped.from) {
			continue
		}
		spans[i].to = mapped.from.Prev()
		if mapped.to.Less(sp.to) {
			spans = append(spans, span{mapped.to.Next(), sp.to})
		}
	}
	return spans
}

// touches reports whether b overlaps a or follows it directly. b does not begin before a.
func touches(a, b span) bool {
	return b.from.Compare(a.to) <= 0 || a.to.Next() == b.from
}

// size returns the number of addresses of a span, at most MaxUint64.
func size(sp span) uint64 { return saturate(distance(sp.from, sp.to), 1) }

// distance returns to − from for addresses of one family, at most MaxUint64.
func distance(from, to netip.Addr) uint64 {
	fromHi, fromLo := halves(from)
	toHi, toLo := halves(to)
	lo, borrow := bits.Sub64(toLo, fromLo, 0)
	if hi, _ := bits.Sub64(toHi, fromHi, borrow); hi != 0 {
		return math.MaxUint64
	}
	return lo
}

// advance returns the address n after a. The caller ensures that the family has such an address.
func advance(a netip.Addr, n uint64) netip.Addr {
	hi, lo := halves(a)
	lo, carry := bits.Add64(lo, n, 0)
	hi += carry
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	if a.Is4() {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return netip.AddrFrom16(b)
}

// halves returns the address, IPv4 as v4-mapped, as two numbers.
func halves(a netip.Addr) (hi, lo uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// saturate adds without overflow.
func saturate(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxUint64
}

// First returns the n lowest addresses of the set, or all if it has fewer.
func (s Set) First(n uint64) Set {
	var part []span
	for _, sp := range s.spans {
		if n == 0 {
			break
		}
		if have := size(sp); have > n {
			sp.to = advance(sp.from, n-1)
		}
		part = append(part, sp)
		n -= min(n, size(sp))
	}
	return newSet(part)
}

// Last returns the n highest addresses of the set, or all if it has fewer.
func (s Set) Last(n uint64) Set {
	if n >= s.len {
		return s
	}
	return s.Minus(s.First(s.len - n))
}

// Union returns the addresses that are in one of the sets.
func Union(sets ...Set) Set {
	var spans []span
	for _, s := range sets {
		spans = append(spans, s.spans...)
	}
	return newSet(spans)
}
