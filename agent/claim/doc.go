// Package claim is the codec of the claim frame, by which a node tells a
// segment that an address belongs to a fencing token, and of the ack, by which
// the kernel that obeyed says so.
//
// The payload follows the Ethernet header (ethertype 0x88B5, IEEE Std 802
// local experimental 1) and has 48 bytes, so that the frame of 62 bytes is
// longer than the Ethernet minimum and is never padded:
//
//	offset  bytes  field
//	     0      4  magic "FLC1"; the digit is the wire version
//	     4      4  flags, big endian; bit 0: ack
//	     8      8  network, big endian
//	    16     16  address; IPv4 as IPv4-mapped IPv6 (RFC 4291, section 2.5.5.2)
//	    32      8  fencing token, big endian
//	    40      8  SipHash-2-4 over bytes 0 to 39, little endian
//
// The same layout stands in bpf/ as a C struct: change both together, with a
// new wire version.
//
// All functions are pure and may be called concurrently.
package claim
