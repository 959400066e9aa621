// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/dchest/siphash"
)

const (
	// EtherType of claims and acks.
	EtherType = 0x88b5
	// Len is the length of the payload in bytes.
	Len = 48
	// EthernetLen is the length of a whole untagged frame in bytes, without FCS.
	EthernetLen = etherHeaderLen + Len

	etherHeaderLen = 14
	claimMagic     = "FLC1"
	ackMagic       = "FLC2"
	tagOffset      = 40
)

// Key is a claim key: the 128-bit SipHash key that the nodes of a cluster share.
type Key [16]byte

// Flags of a frame: bit 0 is FlagAck, Asks documents bits 1 to 31.
type Flags uint32

// FlagAck marks an ack. An ack keeps the other flags of its claim.
const FlagAck Flags = 1 << 0

// Asks returns the flags of a claim that asks one holder for its ack: bits 1 to 31 are the low 31
// bits of the token of the holder's lease. The claim fences every holder of the address, but only the
// ack of the last holder proves anything. If these bits are 0, the claim asks no holder.
func Asks(token uint64) Flags { return Flags(uint32(token) << 1) }

// magic returns the first bytes of a frame with these flags. An ack of wire version 1 answers for the
// MAC of a holder, which is no proof, because two holders may have one MAC.
func (f Flags) magic() string {
	if f&FlagAck != 0 {
		return ackMagic
	}
	return claimMagic
}

// Frame is a claim or an ack: "on this network, the address belongs to the holder of this token".
type Frame struct {
	Flags   Flags
	Network uint64
	Addr    netip.Addr
	Token   uint64
}

// Marshal returns the payload, signed with key. It drops the zone of an IPv6 address.
func (f Frame) Marshal(key Key) [Len]byte {
	var b [Len]byte
	copy(b[0:4], f.Flags.magic())
	binary.BigEndian.PutUint32(b[4:8], uint32(f.Flags))
	binary.BigEndian.PutUint64(b[8:16], f.Network)
	addr := f.Addr.As16()
	copy(b[16:32], addr[:])
	binary.BigEndian.PutUint64(b[32:40], f.Token)
	binary.LittleEndian.PutUint64(b[tagOffset:], tag(key, b[:tagOffset]))
	return b
}

// Ethernet returns the untagged frame of the claim from src to dst. Both must be 48-bit MACs.
func (f Frame) Ethernet(dst, src net.HardwareAddr, key Key) ([]byte, error) {
	if len(dst) != 6 || len(src) != 6 {
		return nil, fmt.Errorf("build claim frame for %s from %q to %q: need 48-bit MACs", f.Addr, src, dst)
	}
	b := make([]byte, 0, EthernetLen)
	b = append(b, dst...)
	b = append(b, src...)
	b = binary.BigEndian.AppendUint16(b, EtherType)
	payload := f.Marshal(key)
	return append(b, payload[:]...), nil
}

// tag is SipHash-2-4 with the key's halves read as little-endian words.
func tag(key Key, b []byte) uint64 {
	return siphash.Hash(binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:]), b)
}

// Network returns the number that separates claims of different clusters, and of unconnected
// networks of one cluster: the first eight bytes of SHA-256 over the UID of the kube-system
// namespace, "/" and the pool's spec.network, which may be empty.
func Network(clusterUID, network string) uint64 {
	sum := sha256.Sum256([]byte(clusterUID + "/" + network))
	return binary.BigEndian.Uint64(sum[:8])
}
