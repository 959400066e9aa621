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
	ResultClaim      = Result(observerResultCLAIM)           // frames with our ethertype
	ResultShort      = Result(observerResultCLAIM_SHORT)     // shorter than a claim
	ResultMagic      = Result(observerResultCLAIM_MAGIC)     // another protocol or wire version
	ResultForeign    = Result(observerResultCLAIM_FOREIGN)   // another cluster's network
	ResultNotHeld    = Result(observerResultCLAIM_NOT_HELD)  // no pod of this node holds the address
	ResultForged     = Result(observerResultCLAIM_FORGED)    // wrong tag
	ResultOld        = Result(observerResultCLAIM_OLD)       // authentic, older than the lease
	ResultEqual      = Result(observerResultCLAIM_EQUAL)     // carries the lease's own token
	ResultFenced     = Result(observerResultCLAIM_FENCED)    // raised the greatest token: the address is fenced
	ResultAgain      = Result(observerResultCLAIM_AGAIN)     // authentic, newer than the lease, not than the greatest token
	ResultAckSent    = Result(observerResultACK_SENT)        // claim turned into an ack
	ResultAck        = Result(observerResultACK)             // authentic ack for an address that is held or watched here
	ResultAckUnasked = Result(observerResultACK_UNASKED)     // ack for an address that this node neither holds on this network nor watches
	ResultFromPod    = Result(observerResultCLAIM_FROM_POD)  // a pod sent our ethertype
	ResultBeyond     = Result(observerResultCLAIM_BEYOND)    // authentic, but this cluster's store cannot have given the token
	ResultDisproved  = Result(observerResultCLAIM_DISPROVED) // carries a token that one of the last renewals of the address disproved
)

// Results of the data path.
const (
	ResultDropFenced    = Result(observerResultDROP_FENCED)    // from or to a fenced address
	ResultDropDead      = Result(observerResultDROP_DEAD)      // the slot is dead, or not in use
	ResultDropSlot      = Result(observerResultDROP_SLOT)      // source is leased to another slot
	ResultDropMAC       = Result(observerResultDROP_MAC)       // ARP or ND for a held address from another MAC
	ResultDropUnleased  = Result(observerResultDROP_UNLEASED)  // the source is not leased to this slot, or a host link's frame is not IP or ARP
	ResultDropMalformed = Result(observerResultDROP_MALFORMED) // the frame's address cannot be determined
)

// Results of listening.
const (
	ResultHit        = Result(observerResultHIT)        // a foreign MAC used a leased or watched address
	ResultSighting   = Result(observerResultSIGHTING)   // recorded the speaker of an address
	ResultReflected  = Result(observerResultREFLECTED)  // own probe reflected to the parent's children
	ResultSuppressed = Result(observerResultSUPPRESSED) // event suppressed by the rate limit
	ResultEventLost  = Result(observerResultEVENT_LOST) // event lost, ring buffer full
	ResultMalformed  = Result(observerResultMALFORMED)  // no evidence: truncated, or no probe by RFC 5227 or RFC 4862
)

// Results of the source guard.
const (
	ResultDropEther       = Result(observerResultDROP_ETHER)       // the Ethernet source is not the interface's
	ResultDropSenderMAC   = Result(observerResultDROP_SENDER_MAC)  // ARP or ND names another MAC for the pod's address
	ResultDropLinkLocal   = Result(observerResultDROP_LINK_LOCAL)  // a link-local source that the interface does not have
	ResultDropUnspecified = Result(observerResultDROP_UNSPECIFIED) // 0.0.0.0 or "::" for something else than a probe or a report
	ResultDropRouter      = Result(observerResultDROP_ROUTER)      // a router's frame: advertisement, redirect, querier, routing protocol
	ResultDropDHCPServer  = Result(observerResultDROP_DHCP_SERVER) // a DHCP server's frame
	ResultDropTagged      = Result(observerResultDROP_TAGGED)      // a VLAN tag, also one of VLAN 0
	ResultDropBridge      = Result(observerResultDROP_BRIDGE)      // a frame for bridges: STP, LLDP, LACP, 802.1X and the like
	ResultDropStranger    = Result(observerResultDROP_STRANGER)    // leaves the node with a MAC that no device of it has, or with a MAC of the node by a pod's socket
	ResultDropTurn        = Result(observerResultDROP_TURN)        // a virtual address of the pod's, of which another one has the turn
	ResultObserved        = Result(observerResultOBSERVED)         // passed, since the pool only observes
)

func (r Result) String() string { return nameOf(resultNames, r, "result") }

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
	ResultDropTurn: "drop-turn",
	ResultObserved: "observed",
	ResultHit:      "hit", ResultSighting: "sighting", ResultReflected: "reflected",
	ResultSuppressed: "suppressed", ResultEventLost: "event-lost", ResultMalformed: "malformed",
}

func (c Counter) index() uint32 {
	return uint32(c.Where)*uint32(observerResultRESULT_MAX) + uint32(c.Result)
}

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
