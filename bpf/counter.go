// SPDX-License-Identifier: Apache-2.0

package bpf

import "fmt"

// Counter identifies one count of the kernel programs: the program and the result for the frame.
type Counter struct {
	Where  Where
	Result Result
}

// String returns "<where>/<result>". Both halves are valid metric labels.
func (c Counter) String() string { return c.Where.String() + "/" + c.Result.String() }

// Result is the result of a program for a frame.
type Result uint16

// Results of claims and acks.
const (
	ResultClaim      Result = 0  // frames with our ethertype
	ResultShort      Result = 1  // shorter than a claim
	ResultMagic      Result = 2  // another protocol or wire version
	ResultForeign    Result = 3  // another cluster's network
	ResultNotHeld    Result = 4  // no pod of this node holds the address
	ResultForged     Result = 5  // wrong tag
	ResultOld        Result = 6  // authentic, older than the lease
	ResultEqual      Result = 7  // carries the lease's own token
	ResultFenced     Result = 8  // raised the greatest token: the address is now fenced
	ResultAgain      Result = 9  // authentic, newer than the lease, but the address was already fenced
	ResultAckSent    Result = 10 // claim turned into an ack
	ResultAck        Result = 11 // authentic ack for a claim of this node
	ResultAckUnasked Result = 12 // ack for an address this node neither holds nor watches
	ResultFromPod    Result = 13 // a pod sent our ethertype
	ResultBeyond     Result = 14 // authentic, but this cluster's store cannot have given the token
)

// Results of the data path.
const (
	ResultDropFenced    Result = 16 // from or to a fenced address
	ResultDropDead      Result = 17 // the slot is dead
	ResultDropSlot      Result = 18 // source is leased to another slot
	ResultDropMAC       Result = 19 // ARP or ND for a held address from another MAC
	ResultDropUnleased  Result = 20 // the source is not leased to this slot
	ResultDropMalformed Result = 21 // the frame's address cannot be determined
)

// ResultDisproved is a claim with the token that one of the last renewals of the address disproved.
const ResultDisproved Result = 22

// Results of listening.
const (
	ResultHit        Result = 24 // a foreign MAC used a leased or watched address
	ResultSighting   Result = 25 // recorded the speaker of an address
	ResultReflected  Result = 26 // own probe reflected to the parent's children
	ResultSuppressed Result = 27 // event suppressed by the rate limit
	ResultEventLost  Result = 28 // event lost, ring buffer full
)

// Results of the source guard.
const (
	ResultDropEther       Result = 32 // the Ethernet source is not the interface's
	ResultDropSenderMAC   Result = 33 // ARP or ND names another MAC for the pod's address
	ResultDropLinkLocal   Result = 34 // a link-local source that the interface does not have
	ResultDropUnspecified Result = 35 // 0.0.0.0 or "::" for something else than a probe or a report
	ResultDropRouter      Result = 36 // a router's frame: advertisement, redirect, querier, routing protocol
	ResultDropDHCPServer  Result = 37 // a DHCP server's frame
	ResultDropTagged      Result = 38 // a VLAN tag, also one of VLAN 0
	ResultDropBridge      Result = 39 // a frame for bridges: STP, LLDP, LACP, 802.1X and the like
	ResultDropStranger    Result = 40 // leaves the node with a MAC that no device of it has
	ResultObserved        Result = 48 // passed, since the pool only observes
)

func (r Result) String() string {
	if s, ok := resultNames[r]; ok {
		return s
	}
	return fmt.Sprintf("result-%d", uint16(r))
}

var resultNames = map[Result]string{
	ResultClaim: "claim", ResultShort: "short", ResultMagic: "magic", ResultForeign: "foreign",
	ResultNotHeld: "not-held", ResultForged: "forged", ResultOld: "old", ResultEqual: "equal",
	ResultFenced: "fenced", ResultAgain: "again", ResultAckSent: "ack-sent", ResultAck: "ack",
	ResultAckUnasked: "ack-unasked", ResultFromPod: "from-pod",
	ResultBeyond: "beyond", ResultDisproved: "disproved",
	ResultDropFenced: "drop-fenced", ResultDropDead: "drop-dead", ResultDropSlot: "drop-slot",
	ResultDropMAC: "drop-mac", ResultDropUnleased: "drop-unleased", ResultDropMalformed: "drop-malformed",
	ResultDropEther: "drop-ether", ResultDropSenderMAC: "drop-sender-mac",
	ResultDropLinkLocal: "drop-link-local", ResultDropUnspecified: "drop-unspecified",
	ResultDropRouter: "drop-router", ResultDropDHCPServer: "drop-dhcp-server",
	ResultDropTagged: "drop-tagged", ResultDropBridge: "drop-bridge", ResultDropStranger: "drop-stranger",
	ResultObserved: "observed",
	ResultHit:      "hit", ResultSighting: "sighting", ResultReflected: "reflected",
	ResultSuppressed: "suppressed", ResultEventLost: "event-lost",
}

// resultsPerWhere is the stride of the counters map. Keep in sync with counter.h.
const resultsPerWhere = 64

func (c Counter) index() uint32 { return uint32(c.Where)*resultsPerWhere + uint32(c.Result) }

// Counters returns every count since the maps were created, summed over CPUs.
func (k *Kernel) Counters() (map[Counter]uint64, error) {
	counts := map[Counter]uint64{}
	for where := WhereGuardIngress; where <= WhereObserverEgress; where++ {
		for result := range resultNames {
			c := Counter{Where: where, Result: result}
			var perCPU []uint64
			if err := k.maps.Counters.Lookup(c.index(), &perCPU); err != nil {
				return nil, fmt.Errorf("read counter %s: %w", c, err)
			}
			for _, n := range perCPU {
				counts[c] += n
			}
		}
	}
	return counts, nil
}
