// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"net/netip"
	"strings"
	"testing"
)

// FuzzSets: entries that are read are a set whose own entries are read as the same set, and sets
// follow the laws of sets.
func FuzzSets(f *testing.F) {
	for _, texts := range [][2]string{
		{"", ""}, {"192.0.2.1-192.0.2.9,192.0.2.7", "192.0.2.4/30"}, {"0.0.0.0/0", "255.255.255.255"}, {"::/0,0.0.0.0", "ffff::-ffff::1"},
		{"::ffff:1.2.3.4", "fe80::1%eth0"}, {"192.0.2.9-192.0.2.1", "192.0.2.1/24"}, {"a-b-c", "-"},
	} {
		f.Add(texts[0], texts[1])
	}
	f.Fuzz(func(t *testing.T, one, other string) {
		a, err := Parse(strings.Split(one, ","))
		if err != nil {
			return
		}
		again, err := Parse(a.Entries())
		if err != nil || !again.Equal(a) || a.Len() == 0 {
			t.Errorf("%q is %v, %v", one, a.Entries(), err)
		}
		for _, i := range []uint64{0, a.Len() / 2, a.Len() - 1} {
			addr := a.At(i)
			if got := a.Rank(addr); got != i || !a.Contains(addr) {
				t.Errorf("%q: %s at %d is at %d", one, addr, i, got)
			}
		}
		b, err := Parse(strings.Split(other, ","))
		if err != nil {
			return
		}
		only, both := a.Minus(b), a.And(b)
		if !only.Plus(both).Equal(a) || !both.Equal(b.And(a)) || only.Overlaps(b) || a.Overlaps(b) != (both.Len() > 0) {
			t.Errorf("%q and %q: only %v, both %v", one, other, only.Entries(), both.Entries())
		}
	})
}

// FuzzBitmaps: a bitmap marks the same offsets when it is written again.
func FuzzBitmaps(f *testing.F) {
	for _, text := range []string{"", "AA==", "/w==", "AQAAAAA=", "====", "A", "AQ==\n"} {
		f.Add(text, uint64(7))
	}
	f.Add("", uint64(1)<<63)
	subnet := netip.MustParsePrefix("10.0.0.0/8")
	f.Fuzz(func(t *testing.T, text string, offset uint64) {
		b, err := DecodeBitmap(text)
		if err != nil {
			return
		}
		again, err := DecodeBitmap(EncodeBitmap(b))
		if err != nil || len(again) > len(b) {
			t.Errorf("%q is written as %q, %v", text, EncodeBitmap(b), err)
		}
		for i := range uint64(8*len(b) + 8) {
			if again.Has(i) != b.Has(i) {
				t.Errorf("%q: offset %d", text, i)
			}
		}
		had := again.Has(offset)
		if got := again.Mark(offset).Has(offset); got != (had || offset < MaxBitmapBits) {
			t.Errorf("%q: offset %d is marked: %v", text, offset, got)
		}
		if got, ok := Offset(subnet, advance(subnet.Addr(), offset%(1<<24))); !ok || got != offset%(1<<24) {
			t.Errorf("offset %d is read as %d, %v", offset, got, ok)
		}
	})
}
