// SPDX-License-Identifier: Apache-2.0

package claim_test

import (
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/agent/segment/claim"
)

// A new holder claims its address with the fencing token of its lease.
func ExampleFrame_Marshal() {
	payload := claim.Frame{
		Network: claim.Network("a3b0f7c2-0000-4000-8000-000000000001", ""),
		Addr:    netip.MustParseAddr("10.20.0.14"),
		Token:   4711,
	}.Marshal(claim.Key{0: 1, 15: 16})
	fmt.Printf("%s, %d bytes\n", payload[:4], len(payload))
	// Output: FLC1, 48 bytes
}

// The ack of the last holder proves that it is fenced, so the claim names the token of its lease.
func ExampleAsks() {
	flags := claim.Asks(10)
	fmt.Printf("%#x, ack: %t\n", uint32(flags), flags&claim.FlagAck != 0)
	// Output: 0x14, ack: false
}
