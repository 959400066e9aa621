// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// discard is a port of TCP on which few listen (RFC 863).
const discard = 9

// answers reports whether a host answers this node. Many firewalls drop echo requests, and a host
// answers a connection to a port on which nothing listens by a refusal.
func answers(ctx context.Context, host netip.Addr, patience time.Duration) bool {
	return echoes(host, patience) || connects(ctx, host, patience)
}

// connects reports whether a host accepts or refuses a connection.
func connects(ctx context.Context, host netip.Addr, patience time.Duration) bool {
	c, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", netip.AddrPortFrom(host, discard).String())
	if err == nil {
		_ = c.Close()
	}
	return err == nil || errors.Is(err, syscall.ECONNREFUSED)
}

// echoes reports whether a host answers an echo request.
func echoes(host netip.Addr, patience time.Duration) bool {
	network, request, reply := "ip4:icmp", icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply)
	if host.Is6() {
		network, request, reply = "ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	c, err := net.Dial(network, host.String())
	if err != nil {
		return false
	}
	defer c.Close()
	id := os.Getpid() & 0xffff
	// The kernel computes the checksum of ICMPv6.
	frame, err := (&icmp.Message{Type: request, Body: &icmp.Echo{ID: id}}).Marshal(nil)
	if err != nil || c.SetDeadline(time.Now().Add(patience)) != nil {
		return false
	}
	if _, err := c.Write(frame); err != nil {
		return false
	}
	for buffer := make([]byte, 1500); ; {
		// Read would leave the header of IPv4 before the message.
		n, _, err := c.(*net.IPConn).ReadFrom(buffer)
		if err != nil {
			return false
		}
		m, err := icmp.ParseMessage(request.(interface{ Protocol() int }).Protocol(), buffer[:n])
		if err != nil || m.Type != reply {
			continue
		}
		if e, ok := m.Body.(*icmp.Echo); ok && e.ID == id {
			return true
		}
	}
}
