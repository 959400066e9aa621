// SPDX-License-Identifier: Apache-2.0

// Package warm keeps addresses ready before a pod needs them: leased, proven free with the timing
// of RFC 5227 or RFC 4862, and watched. An ADD then needs one write and waits for no probe.
//
// Plan, a pure function, decides which leases to keep. While this node is Ready, only its own agent
// ends its Warm leases. It releases them before a pool is full: a Warm lease exhausts no pool.
package warm
