package v1alpha1

import (
	"fmt"
	"net/netip"
	"strings"
)

// Annotations, labels and finalizers.
const (
	// AnnotationPrefix is our prefix of pod and namespace annotations.
	AnnotationPrefix = "ipam.fenceline.io/"
	// LegacyAnnotationPrefix is understood too; ours wins.
	LegacyAnnotationPrefix = "ipam.spidernet.io/"
	// AnnotationForceDelete lets a person delete a lease that is not Retained.
	AnnotationForceDelete = "fenceline.io/force-delete"
	// AnnotationAgentIndex stands on an agent's pod: its index among the agents, from 0.
	AnnotationAgentIndex = "fenceline.io/agent-index"
	// FinalizerPool keeps a pool until no lease of it is left.
	FinalizerPool = "fenceline.io/leases"
)

// LeaseName returns the name of the lease of an address:
// "[<network>.]<address>", IPv6 fully expanded with "-" for ":".
func LeaseName(network string, addr netip.Addr) string {
	name := addr.Unmap().WithZone("").StringExpanded()
	name = strings.ReplaceAll(name, ":", "-")
	if network == "" {
		return name
	}
	return network + "." + name
}

// ParseLeaseName is the inverse of LeaseName.
func ParseLeaseName(name string) (network string, addr netip.Addr, err error) {
	text := name
	// A network starts with a letter and holds no dot, an IPv4 address starts with a digit.
	// An expanded IPv6 address may start with a letter, but holds no dot.
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
	return network, addr, nil
}
