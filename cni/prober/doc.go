// SPDX-License-Identifier: Apache-2.0

// Package prober asks the segment of a container's interface whether other hosts use addresses, by
// ARP probes (RFC 5227 section 2.1) and neighbour solicitations (RFC 4862 section 5.4). It hears
// the answers through packet sockets on the interface itself, so that remote hosts and the
// neighbours on the same machine answer alike.
package prober
