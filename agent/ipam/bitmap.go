package ipam

import (
	"encoding/base64"
	"fmt"
	"net/netip"
)

// MaxBitmapBits bounds IPPool.status.inUse to 128 KiB. Offsets beyond it, as
// those of a large IPv6 subnet, have no bit, and their use is not hinted at.
const MaxBitmapBits = 1 << 20

// Bitmap marks addresses of a subnet by their offset from its first address:
// bit i of byte j is offset 8j+i. An offset beyond its end is not marked.
type Bitmap []byte

// DecodeBitmap reads IPPool.status.inUse.
func DecodeBitmap(text string) (Bitmap, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("bitmap of addresses in use: %w", err)
	}
	return b, nil
}

// EncodeBitmap writes IPPool.status.inUse, without the unmarked end.
func EncodeBitmap(b Bitmap) string {
	end := len(b)
	for end > 0 && b[end-1] == 0 {
		end--
	}
	return base64.StdEncoding.EncodeToString(b[:end])
}

// Has tells whether an offset is marked.
func (b Bitmap) Has(offset uint64) bool {
	return offset/8 < uint64(len(b)) && b[offset/8]&(1<<(offset%8)) != 0
}

// Mark marks an offset and returns the bitmap, grown where necessary, as
// append does. Offsets from MaxBitmapBits on are left out.
func (b Bitmap) Mark(offset uint64) Bitmap {
	if offset >= MaxBitmapBits {
		return b
	}
	if missing := int(offset/8) + 1 - len(b); missing > 0 {
		b = append(b, make(Bitmap, missing)...)
	}
	b[offset/8] |= 1 << (offset % 8)
	return b
}

// Offset returns the bit of an address in the bitmap of its subnet. It is
// false for an address outside of the subnet.
func Offset(subnet netip.Prefix, a netip.Addr) (uint64, bool) {
	if !subnet.Contains(a) {
		return 0, false
	}
	return distance(subnet.Masked().Addr(), a), true
}
