// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/agent/segment/claim"
)

// A new holder claims its address with the fencing token of its lease. Each node that has the key
// can read the claim and knows that it is authentic.
func ExampleFrame_Marshal() {
	key := claim.Key{0: 1, 15: 16}
	payload := claim.Frame{
		Network: claim.Network("a3b0f7c2-0000-4000-8000-000000000001", ""),
		Addr:    netip.MustParseAddr("10.20.0.14"),
		Token:   4711,
	}.Marshal(key)
	fmt.Printf("%s, %d bytes\n", payload[:4], len(payload))

	frame, err := claim.Unmarshal(payload[:], key)
	fmt.Println(frame.Addr, frame.Token, err)

	_, err = claim.Unmarshal(payload[:], claim.Key{})
	fmt.Println(err)
	// Output:
	// FLC1, 48 bytes
	// 10.20.0.14 4711 <nil>
	// tag of the claim frame fits no claim key
}

// During a rotation two keys are good: the receiver passes both.
func ExampleUnmarshal() {
	current, previous := claim.Key{1}, claim.Key{2}
	payload := claim.Frame{Addr: netip.MustParseAddr("fd00:20::e"), Token: 7}.Marshal(previous)

	frame, err := claim.Unmarshal(payload[:], current, previous)
	fmt.Println(frame.Addr, frame.Token, err)
	// Output: fd00:20::e 7 <nil>
}

// The ack of the last holder proves that it is fenced, so the claim names the token of its lease.
func ExampleAsks() {
	flags := claim.Asks(10)
	fmt.Printf("%#x, ack: %t\n", uint32(flags), flags&claim.FlagAck != 0)
	// Output: 0x14, ack: false
}
