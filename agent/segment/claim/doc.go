// SPDX-License-Identifier: Apache-2.0

// Package claim is the codec of the claim frame and of the ack. A claim tells a segment that an
// address belongs to a fencing token. An ack is the reply of the kernel that has fenced it.
//
// The payload follows the Ethernet header (ethertype 0x88B5, IEEE Std 802 local experimental 1) and
// has 48 bytes. The frame of 62 bytes is longer than the Ethernet minimum and is never padded:
//
//	offset  bytes  field
//	     0      4  magic "FLC1" of a claim, "FLC2" of an ack; the digit is the
//	               wire version
//	     4      4  flags, big endian: bit 0 ack; bits 1 to 31 the low 31 bits
//	               of the token of the holder whose ack is asked for, 0 for none
//	     8      8  network, big endian
//	    16     16  address; IPv4 as IPv4-mapped IPv6 (RFC 4291, section 2.5.5.2)
//	    32      8  fencing token, big endian
//	    40      8  SipHash-2-4 over bytes 0 to 39, little endian
//
// Older agents named the holder by its MAC in bits 1 to 31, asked every holder with 0, and sent
// acks with the digit 1. Old and new nodes obey each other's claims, but count no acks of each other.
//
// bpf/src/claim.h has the same layout, and a test compares both. A change needs a new wire version.
//
// All functions are pure and may be called concurrently.
package claim
