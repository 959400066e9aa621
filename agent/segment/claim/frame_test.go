// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

var keyA = Key{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

func TestTagIsTheSipHashOfThePublishedVectors(t *testing.T) {
	// Appendix A of the SipHash paper: key 00..0f, message 00..0e.
	msg := make([]byte, 15)
	for i := range msg {
		msg[i] = byte(i)
	}
	check.Equal(t, tag(keyA, msg), 0xa129ca6149be45e5, "tag")
}

func TestFrameOnTheWire(t *testing.T) {
	for _, tc := range []struct {
		name  string
		frame Frame
		want  string // bytes 0 to 39
	}{
		{"claim for IPv4 carries the mapped address",
			Frame{Network: 0x0102030405060708, Addr: netip.MustParseAddr("192.0.2.7"), Token: 0x1122},
			"464c4331" + "00000000" + "0102030405060708" + "00000000000000000000ffffc0000207" + "0000000000001122"},
		{"a claim asks one holder, by the low 31 bits of its token",
			Frame{Flags: Asks(0x1_ff00_0005), Network: 1, Addr: netip.MustParseAddr("192.0.2.7"), Token: 2},
			"464c4331" + "fe00000a" + "0000000000000001" + "00000000000000000000ffffc0000207" + "0000000000000002"},
		{"ack for IPv6 sets bit 0, and has a version of its own",
			Frame{Flags: FlagAck, Network: 1, Addr: netip.MustParseAddr("2001:db8::7"), Token: 1<<64 - 1},
			"464c4332" + "00000001" + "0000000000000001" + "20010db8000000000000000000000007" + "ffffffffffffffff"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := tc.frame.Marshal(keyA)
			check.Equal(t, hex.EncodeToString(b[:tagOffset]), tc.want, "payload")
			check.Equal(t, binary.LittleEndian.Uint64(b[tagOffset:]), tag(keyA, b[:tagOffset]), "tag")
		})
	}
}

func TestEthernetFrameNeedsNoPadding(t *testing.T) {
	dst := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	src := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	f := Frame{Network: 1, Addr: netip.MustParseAddr("192.0.2.7"), Token: 2}
	b := check.Value(f.Ethernet(dst, src, keyA))(t)
	check.Must(t, len(b) == 62, "frame has %d bytes, want 62", len(b))
	check.Equal(t, hex.EncodeToString(b[:14]), "ffffffffffff"+"020000000001"+"88b5", "header")
	payload := f.Marshal(keyA)
	check.Same(t, b[14:], payload[:], "payload")
	check.Must(t, check.Err(f.Ethernet(nil, src, keyA)) != nil, "a frame without destination was built")
}

func TestNetworkSeparatesClustersAndNetworks(t *testing.T) {
	// printf '6b1c2d3e-0000-4000-8000-000000000001/blue' | sha256sum
	const uid = "6b1c2d3e-0000-4000-8000-000000000001"
	check.Equal(t, Network(uid, "blue"), 0x2a02f8e49a0932a2, "Network =")
	check.That(t, Network(uid, "") != Network(uid, "blue"), "two networks of one cluster share a number")
	check.That(t, Network("other", "blue") != Network(uid, "blue"), "two clusters share a number")
}
