// SPDX-License-Identifier: Apache-2.0

// Package judges lets programs of others tell whether Fenceline speaks their protocols: arping,
// arp-scan, ndisc6, dhcpcd, systemd-networkd and the kernel's own duplicate address detection. Each
// stands on the segment of a real agent and its pods. It sees that a pod defends its address, and the
// agent sees it as a holder and as a prober.
package judges
