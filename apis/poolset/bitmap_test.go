// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestBitOfAnAddressIsItsOffsetInTheSubnet(t *testing.T) {
	for _, c := range []struct {
		subnet, addr string
		offset       uint64
		ok           bool
	}{
		{"10.0.0.0/24", "10.0.0.0", 0, true},
		{"10.0.0.0/24", "10.0.0.255", 255, true},
		{"10.0.0.0/24", "10.0.1.0", 0, false},
		{"10.0.0.0/24", "fd00::1", 0, false},
		{"fd00::/64", "fd00::1:0", 1 << 16, true},
	} {
		got, ok := Offset(netip.MustParsePrefix(c.subnet), netip.MustParseAddr(c.addr))
		if got != c.offset || ok != c.ok {
			t.Errorf("%s in %s: %d, %v, want %d, %v", c.addr, c.subnet, got, ok, c.offset, c.ok)
		}
	}
}

func TestBitmapLayoutIsThatOfTheAPI(t *testing.T) {
	// Offsets 0, 9 and 15: byte 0 is 0x01, byte 1 is 0x82.
	b := Bitmap(nil).Mark(0).Mark(9).Mark(15)
	if got := EncodeBitmap(b); got != "AYI=" {
		t.Errorf("encoded as %s, want AYI=", got)
	}
}

func TestBitmapRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		marked := map[uint64]bool{}
		b := make(Bitmap, r.IntN(64))
		for range r.IntN(20) {
			offset := uint64(r.IntN(2000))
			marked[offset] = true
			b = b.Mark(offset)
		}
		got, err := DecodeBitmap(EncodeBitmap(b))
		check.OK(t, err)
		for offset := range uint64(2100) {
			if got.Has(offset) != marked[offset] {
				t.Fatalf("offset %d: %v", offset, got.Has(offset))
			}
		}
	}
}

func TestAnOffsetWithoutABitIsNotMarked(t *testing.T) {
	b := Bitmap(nil).Mark(MaxBitmapBits)
	if len(b) != 0 || b.Has(MaxBitmapBits) || b.Has(1<<63) {
		t.Errorf("%d bytes for an offset beyond the end", len(b))
	}
}

func TestABitmapThatIsNotBase64IsAnError(t *testing.T) {
	if _, err := DecodeBitmap("?"); err == nil {
		t.Error("no error")
	}
}
