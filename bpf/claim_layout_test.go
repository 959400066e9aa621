// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/test/check"
)

// The claim's layout stands twice: in claim.h and in agent/segment/claim. These tests compare the codec with the BTF of the
// committed object, from which the kernel's programs are loaded.

func TestTheFieldsOfAClaimAreThoseOfTheCodec(t *testing.T) {
	var layout *btf.Struct
	check.OK(t, observerTypes(t).TypeByName("claim", &layout))
	check.That(t, layout.Size == claim.Len, "the C struct has %d bytes, the codec's payload %d", layout.Size, claim.Len)
	codec := codecFields()
	for _, m := range layout.Members {
		size := check.Value(btf.Sizeof(m.Type))(t)
		var want []int
		for i := range size {
			want = append(want, int(m.Offset.Bytes())+i)
		}
		got := codec[m.Name]
		check.That(t, slices.Equal(got, want), "%s: the codec has it in bytes %v, the C struct in %v", m.Name, got, want)
		delete(codec, m.Name)
	}
	for name := range codec {
		t.Errorf("%s: the C struct does not have it", name)
	}
}

// codecFields are the offsets of the bytes of each field, by the names in claim.h: the bytes that change when all bits
// of that field do.
func codecFields() map[string][]int {
	none := netip.IPv6Unspecified()
	base := claim.Frame{Addr: none}.Marshal(claim.Key{})
	tag := differing(base, claim.Frame{Addr: none}.Marshal(claim.Key{1}))
	field := func(payload [claim.Len]byte) []int {
		return slices.DeleteFunc(differing(base, payload), func(i int) bool { return slices.Contains(tag, i) })
	}
	// The last bit of the flags makes the frame an ack, which changes the magic too.
	flags := field(claim.Frame{Addr: none, Flags: ^claim.FlagAck}.Marshal(claim.Key{}))
	all := netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
	return map[string][]int{
		"magic":   field([claim.Len]byte{}), // the only field that is not zero
		"flags":   flags,
		"network": field(claim.Frame{Addr: none, Network: ^uint64(0)}.Marshal(claim.Key{})),
		"addr":    field(claim.Frame{Addr: all}.Marshal(claim.Key{})),
		"token":   field(claim.Frame{Addr: none, Token: ^uint64(0)}.Marshal(claim.Key{})),
		"tag":     tag,
	}
}

// differing returns the offsets at which two payloads differ.
func differing(a, b [claim.Len]byte) (offsets []int) {
	for i := range a {
		if a[i] != b[i] {
			offsets = append(offsets, i)
		}
	}
	return offsets
}

func TestTheNumbersOfAClaimAreThoseOfTheCodec(t *testing.T) {
	var wire *btf.Enum
	check.OK(t, observerTypes(t).TypeByName("claim_wire", &wire))
	inC := map[string]uint64{}
	for _, v := range wire.Values {
		inC[v.Name] = v.Value
	}
	payload := claim.Frame{Addr: netip.IPv4Unspecified()}.Marshal(claim.Key{})
	ack := claim.Frame{Flags: claim.FlagAck, Addr: netip.IPv4Unspecified()}.Marshal(claim.Key{})
	asked := claim.Asks(1) // the lowest bit of a token
	codec := map[string]uint64{
		"CLAIM_ETHERTYPE":   claim.EtherType,
		"CLAIM_MAGIC_V1":    uint64(binary.BigEndian.Uint32(payload[:])),
		"ACK_MAGIC_V2":      uint64(binary.BigEndian.Uint32(ack[:])),
		"CLAIM_FLAG_ACK":    uint64(claim.FlagAck),
		"CLAIM_ASKED_SHIFT": uint64(bits.TrailingZeros32(uint32(asked))),
	}
	check.That(t, maps.Equal(inC, codec), "in C %#x, in the codec %#x", inC, codec)
	// The rest of the flags is the token's: as many low bits as there is room for.
	all := claim.Asks(^uint64(0))
	check.That(t, all == ^claim.FlagAck, "a claim asks by the bits %#x, the ack has %#x", all, claim.FlagAck)
}

func observerTypes(t *testing.T) *btf.Spec {
	t.Helper()
	spec := check.Value(loadObserver())(t)
	return spec.Types
}
