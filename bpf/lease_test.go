// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/bits"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/test/check"
)

func TestOnlyANewerTokenReplacesALease(t *testing.T) {
	held := Lease{Token: 100, Slot: 1}
	watch := Lease{}
	for name, tc := range map[string]struct {
		present, next Lease
		want          error
	}{
		"newer token":                 {held, Lease{Token: 101, Slot: 2}, nil},
		"same token, after a restart": {held, held, nil},
		"same token, Warm to Bound":   {Lease{Token: 100}, held, nil},
		"older token":                 {held, Lease{Token: 99, Slot: 2}, ErrOlderToken},
		"holder over a watch":         {watch, held, nil},
		"watch over a holder":         {held, watch, ErrHeld},
		"newer watch over a holder":   {held, Lease{Token: 101}, ErrHeld},
		"watch over a watch":          {watch, watch, nil},
	} {
		t.Run(name, func(t *testing.T) { check.Is(t, tc.next.succeeds(tc.present), tc.want, "got") })
	}
}

func TestALeaseNeedsAnEthernetMAC(t *testing.T) {
	six := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for name, tc := range map[string]struct {
		lease Lease
		ok    bool
	}{
		"holder":                  {Lease{Slot: 1, MAC: six}, true},
		"watch without MAC":       {Lease{}, true},
		"watch with MAC":          {Lease{MAC: six}, true},
		"holder without MAC":      {Lease{Slot: 1}, false},
		"holder with an IB MAC":   {Lease{Slot: 1, MAC: make(net.HardwareAddr, 20)}, false},
		"slot beyond the map":     {Lease{Slot: MaxSlot + 1, MAC: six}, false},
		"the greatest slot there": {Lease{Slot: MaxSlot, MAC: six}, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.lease.check()
			check.That(t, (err == nil) == tc.ok, "got %v", err)
		})
	}
}

func TestLayoutsKeepWhatTheyCarry(t *testing.T) {
	for _, addr := range []string{"10.9.0.1", "fd09::1"} {
		key := Key{Segment: 7, Addr: netip.MustParseAddr(addr)}
		check.Equal(t, key.layout().key(), key, "key: got")
	}
	lease := Lease{Token: 1, Network: 2, Slot: 3, MAC: net.HardwareAddr{1, 2, 3, 4, 5, 6}, Flags: FlagSharedMAC}
	got := lease.layout().lease()
	check.That(t, reflect.DeepEqual(got, lease), "lease: got %+v, want %+v", got, lease)
	check.Same(t, Lease{}.layout().lease(), Lease{}, "watch")
}

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

// FuzzEvent: a record of the ring buffer is an event that says all that the kernel wrote, or an error.
func FuzzEvent(f *testing.F) {
	size := binary.Size(observerEvent{})
	for _, n := range []int{0, 1, size - 1, size, size + 8} {
		f.Add(bytes.Repeat([]byte{0xa5}, n))
	}
	f.Add(make([]byte, size))
	f.Fuzz(func(t *testing.T, record []byte) {
		e, err := decodeEvent(record)
		check.That(t, (err == nil) == (len(record) == size), "%d bytes, an event has %d: %v", len(record), size, err)
		if err != nil {
			return
		}
		again := observerEvent{
			Ns: uint64(e.At), Token: e.Token, Mine: e.Mine, Key: e.Key.layout(), Type: uint16(e.Type), Where: uint16(e.Where),
		}
		var by [8]byte
		copy(by[:], e.MAC)
		kind := e.Kind
		if e.Announces {
			kind |= kindAnnounces
		}
		binary.NativeEndian.PutUint16(by[6:], uint16(kind))
		again.By = binary.NativeEndian.Uint64(by[:])
		if got, err := binary.Append(nil, binary.NativeEndian, again); err != nil || !bytes.Equal(got, record) {
			t.Errorf("% x is read as %+v, which is % x, %v", record, e, got, err)
		}
	})
}
