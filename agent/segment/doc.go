// SPDX-License-Identifier: Apache-2.0

// Package segment is the node agent's part on an L2 segment. It probes addresses (RFC 5227, RFC
// 4862), claims them, verifies that a previous holder is fenced or silent, announces new holders,
// repeats the claims of this node's holders and defends them.
//
// It sends by packet sockets and never reads from one. The observer, the kernel program on
// the parent, sees the frames of other hosts and reports them as events and, since events may be
// lost, as state. So the package hears remote hosts, local siblings and the answers to its own
// probes. No socket on the parent receives all of these.
//
// Invariants that live here:
//
//   - R1: the verdict of a verification is a pure function of its Evidence
//     (Judge). Only after Fenced or Silent may the address be handed out.
//   - R2: silence heard by a deaf listener is Unknown, never Silent.
//   - R3: every holder's claim is repeated about once a minute.
//   - R10: claim, wait 20 ms, announce only if still unfenced. A fenced holder
//     does not repeat its claim, defend its address or announce it.
//
// Addresses are IPv4 or IPv6 without zone. Boot times are CLOCK_BOOTTIME, which the kernel programs
// use. A pool's mode applies to all methods but Ask: Observe sends no claim, Off no frame.
package segment
