// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"encoding/base64"
	"fmt"
	"net/netip"
)

// MaxBitmapBits bounds IPPool.status.inUse to 128 KiB. A greater offset, such as in a large IPv6 subnet,
// has no bit and never counts as marked.
const MaxBitmapBits = 1 << 20

// Bitmap marks addresses of a subnet by their offset from its first address. Bit i of byte j is offset
// 8j+i. An offset beyond the end is not marked.
type Bitmap []byte

// DecodeBitmap reads IPPool.status.inUse.
func DecodeBitmap(text string) (Bitmap, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("bitmap of addresses in use: %w", err)
	}
	return b, nil
}

// EncodeBitmap returns the text for IPPool.status.inUse. It omits the unmarked bytes at the end.
func EncodeBitmap(b Bitmap) string {
	end := len(b)
	for end > 0 && b[end-1] == 0 {
		end--
	}
	return base64.StdEncoding.EncodeToString(b[:end])
}

// Has reports whether an offset is marked.
func (b Bitmap) Has(offset uint64) bool {
	return offset/8 < uint64(len(b)) && b[offset/8]&(1<<(offset%8)) != 0
}

// Mark marks an offset and returns the bitmap, which it extends if necessary, as append does. It
// ignores offsets from MaxBitmapBits on.
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

// Offset returns the offset of an address in its subnet. It returns false for an address outside of the
// subnet.
func Offset(subnet netip.Prefix, a netip.Addr) (uint64, bool) {
	if !subnet.Contains(a) {
		return 0, false
	}
	return distance(subnet.Masked().Addr(), a), true
}
