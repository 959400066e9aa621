// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"encoding/hex"
	"net"
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

var (
	keyA = Key{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	keyB = Key{15: 1}
)

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
			check.Equal(t, check.Value(Unmarshal(b[:], keyB, keyA))(t), tc.frame, "came back as")
		})
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	valid := Frame{Network: 1, Addr: netip.MustParseAddr("192.0.2.7"), Token: 2}.Marshal(keyA)
	flip := func(i int) []byte {
		b := valid
		b[i] ^= 1
		return b[:]
	}
	for _, tc := range []struct {
		name string
		b    []byte
		keys []Key
		want error
	}{
		{"nothing", nil, []Key{keyA}, ErrShort},
		{"a payload cut by one byte", valid[:Len-1], []Key{keyA}, ErrShort},
		{"another wire version", flip(3), []Key{keyA}, ErrMagic},
		{"an ack of wire version 1, which answers for a MAC", flip(7), []Key{keyA}, ErrMagic},
		{"a changed flag", flip(6), []Key{keyA}, ErrTag},
		{"a changed network", flip(8), []Key{keyA}, ErrTag},
		{"a changed address", flip(31), []Key{keyA}, ErrTag},
		{"a changed token", flip(39), []Key{keyA}, ErrTag},
		{"a changed tag", flip(47), []Key{keyA}, ErrTag},
		{"a key that is not ours", valid[:], []Key{keyB}, ErrTag},
		{"no key at all", valid[:], nil, ErrTag},
	} {
		t.Run(tc.name, func(t *testing.T) { check.Is(t, check.Err(Unmarshal(tc.b, tc.keys...)), tc.want, "got") })
	}
}

func TestUnmarshalIgnoresPadding(t *testing.T) {
	f := Frame{Network: 1, Addr: netip.MustParseAddr("192.0.2.7"), Token: 2}
	b := f.Marshal(keyA)
	check.Equal(t, check.Value(Unmarshal(append(b[:], 0, 0, 0), keyA))(t), f, "got")
}

func TestEthernetFrameNeedsNoPadding(t *testing.T) {
	dst := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	src := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	f := Frame{Network: 1, Addr: netip.MustParseAddr("192.0.2.7"), Token: 2}
	b := check.Value(f.Ethernet(dst, src, keyA))(t)
	check.Must(t, len(b) == 62, "frame has %d bytes, want 62", len(b))
	check.Equal(t, hex.EncodeToString(b[:14]), "ffffffffffff"+"020000000001"+"88b5", "header")
	check.Equal(t, check.Value(Unmarshal(b[14:], keyA))(t), f, "payload")
	check.Must(t, check.Err(f.Ethernet(nil, src, keyA)) != nil, "a frame without destination was built")
}

func TestNetworkSeparatesClustersAndNetworks(t *testing.T) {
	// printf '6b1c2d3e-0000-4000-8000-000000000001/blue' | sha256sum
	const uid = "6b1c2d3e-0000-4000-8000-000000000001"
	check.Equal(t, Network(uid, "blue"), 0x2a02f8e49a0932a2, "Network =")
	check.That(t, Network(uid, "") != Network(uid, "blue"), "two networks of one cluster share a number")
	check.That(t, Network("other", "blue") != Network(uid, "blue"), "two clusters share a number")
}

func FuzzUnmarshal(f *testing.F) {
	claim := Frame{Network: 1, Addr: netip.MustParseAddr("192.0.2.7"), Token: 2}.Marshal(keyA)
	ack := Frame{Flags: FlagAck, Network: 1, Addr: netip.MustParseAddr("2001:db8::7"), Token: 2}.Marshal(keyB)
	f.Add(claim[:])
	f.Add(ack[:])
	f.Add([]byte(claimMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := Unmarshal(b, keyA, keyB)
		if err != nil {
			return
		}
		// What was accepted under a key is exactly what that key signs.
		for _, key := range []Key{keyA, keyB} {
			if again := frame.Marshal(key); string(again[:]) == string(b[:Len]) {
				return
			}
		}
		t.Fatalf("accepted %x, which no key signs", b)
	})
}
