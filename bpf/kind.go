// SPDX-License-Identifier: Apache-2.0

package bpf

import "fmt"

// Kind is the kind of frame that used an address.
type Kind uint16

// Kinds of frames. KindARPProbe and KindDAD are tentative: the sender asks whether the address is
// in use.
const (
	KindARP      = Kind(observerKindKIND_ARP)       // other ARP whose sender is the address (RFC 826, RFC 5227)
	KindARPProbe = Kind(observerKindKIND_ARP_PROBE) // ARP probe: sender 0.0.0.0, target the address (RFC 5227 section 2.1.1)
	KindNA       = Kind(observerKindKIND_NA)        // neighbour advertisement for the address (RFC 4861 section 4.4)
	KindNS       = Kind(observerKindKIND_NS)        // neighbour solicitation sent from the address (RFC 4861 section 4.3)
	KindDAD      = Kind(observerKindKIND_DAD)       // neighbour solicitation from :: for the address (RFC 4862 section 5.4)
	KindIP       = Kind(observerKindKIND_IP)        // IP packet sent from the address
	KindARPReply = Kind(observerKindKIND_ARP_REPLY) // ARP reply to a probe of the address (RFC 5227 section 2.1.1)
	KindClaim    = Kind(observerKindKIND_CLAIM)     // authentic claim of the address; the speaker is the parent of its node
)

// kindAnnounces stands beside the kind of a hit.
const kindAnnounces = Kind(observerKindKIND_ANNOUNCES)

// Tentative reports whether a frame of this kind only probes the address.
func (k Kind) Tentative() bool { return k == KindARPProbe || k == KindDAD }

// Answers reports whether a host that has heard a probe of the address sends a frame of this kind.
func (k Kind) Answers() bool { return k == KindARPReply || k == KindNA }

func (k Kind) String() string { return nameOf(kindNames, k, "kind") }

var kindNames = map[Kind]string{
	KindARP: "arp", KindARPProbe: "arp-probe", KindARPReply: "arp-reply",
	KindNA: "na", KindNS: "ns", KindDAD: "dad", KindIP: "ip", KindClaim: "claim",
}

// nameOf returns the name of a number. A number of a later version has none: then it stands after the word.
func nameOf[N ~uint16](names map[N]string, n N, word string) string {
	if name, ok := names[n]; ok {
		return name
	}
	return fmt.Sprintf("%s-%d", word, uint16(n))
}
