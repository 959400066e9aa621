// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"net/netip"
	"strings"
)

// Annotations, labels and finalizers.
const (
	// AnnotationPrefix is the prefix of Fenceline's annotations of pods and namespaces.
	AnnotationPrefix = "ipam.fenceline.io/"
	// LegacyAnnotationPrefix works too. An annotation with AnnotationPrefix takes precedence.
	LegacyAnnotationPrefix = "ipam.spidernet.io/"
	// AnnotationForceDelete lets a person delete a lease that is not Retained.
	AnnotationForceDelete = "fenceline.io/force-delete"
	// AnnotationAgentIndex is an annotation of an agent's pod. It is the index of the agent, from 0.
	AnnotationAgentIndex = "fenceline.io/agent-index"
	// LabelMove is the label of a lease that belongs to a Move. Its value is the Move's name.
	LabelMove = "fenceline.io/move"
	// AnnotationMoveRecord of such a lease names the record of the old IPAM.
	AnnotationMoveRecord = "fenceline.io/move-record"
	// AnnotationMoveHold of such a lease is the reason for which its pod must not be adopted.
	AnnotationMoveHold = "fenceline.io/move-hold"
	// AnnotationMoveBack of a lease tells the agent that its pod may go back to the other IPAM. Its value is the
	// generation of the Move in LabelMove. The agent asks the Move itself, since people may write the annotation.
	AnnotationMoveBack = "fenceline.io/move-back"
	// LabelPool is the prefix of the labels that tell the scheduler which nodes a pool serves.
	LabelPool = "pool.fenceline.io/"
	// FinalizerPool keeps a pool until its last lease is gone.
	FinalizerPool = "fenceline.io/leases"
)

// LeaseName returns the name of the lease of an address: "[<network>.]<address>". An IPv6 address is
// expanded, with "-" for ":".
func LeaseName(network string, addr netip.Addr) string {
	name := addr.Unmap().WithZone("").StringExpanded()
	name = strings.ReplaceAll(name, ":", "-")
	if network == "" {
		return name
	}
	return network + "." + name
}

// ParseLeaseName is the inverse of LeaseName. A name that LeaseName never returns is an error.
func ParseLeaseName(name string) (network string, addr netip.Addr, err error) {
	text := name
	// A network starts with a letter and has no dot. An IPv4 address starts with a digit. An expanded
	// IPv6 address may start with a letter, but has no dot.
	if first, rest, dotted := strings.Cut(name, "."); dotted && (first[:min(1, len(first))] > "9") {
		network, text = first, rest
	}
	if !strings.Contains(text, ".") {
		text = strings.ReplaceAll(text, "-", ":")
	}
	addr, err = netip.ParseAddr(text)
	if err != nil {
		return "", netip.Addr{}, fmt.Errorf("lease name %q: %w", name, err)
	}
	if want := LeaseName(network, addr); want != name {
		return "", netip.Addr{}, fmt.Errorf("lease name %q: the lease of this address is named %q", name, want)
	}
	return network, addr, nil
}

// Addr returns the address of a lease. It returns the zero Addr if the address cannot be read. The CRD
// refuses such a lease, so only a lease that did not come from an API server can have one.
func (s *IPLeaseSpec) Addr() netip.Addr {
	addr, _ := netip.ParseAddr(s.Address)
	return addr
}
