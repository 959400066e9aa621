// SPDX-License-Identifier: Apache-2.0

// Package rivals runs programs of others on a host of a test. Each asks the segment for an address
// before the host uses it: arping, dhcpcd, systemd-networkd, and the kernel. They need root.
package rivals
