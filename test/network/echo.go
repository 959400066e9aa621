// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/must"
)

// Echo answers each request over "tcp" or "udp" with the address of its client, until the test ends.
func (n *Namespace) Echo(t testing.TB, protocol string, at netip.AddrPort) {
	t.Helper()
	answer := func(client net.Addr) []byte {
		from, _ := netip.ParseAddrPort(client.String())
		return []byte(from.Addr().Unmap().String())
	}
	if protocol == "udp" {
		var c net.PacketConn
		check.OK(t, n.Do(func() (err error) { c, err = net.ListenPacket(protocol, at.String()); return err }))
		t.Cleanup(func() { _ = c.Close() })
		go func() {
			for {
				_, from, err := c.ReadFrom(make([]byte, 1))
				if err != nil {
					return
				}
				_, _ = c.WriteTo(answer(from), from)
			}
		}()
		return
	}
	var l net.Listener
	check.OK(t, n.Do(func() (err error) { l, err = net.Listen(protocol, at.String()); return err }))
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for _, err := c.Read(make([]byte, 1)); err == nil; _, err = c.Read(make([]byte, 1)) {
					_, _ = c.Write(answer(c.RemoteAddr()))
				}
			}()
		}
	}()
}

// Connect connects a client within the limit. A valid by is its address, for TCP only; else the kernel chooses one.
func (n *Namespace) Connect(by netip.Addr, protocol string, to netip.AddrPort, limit time.Duration) (c net.Conn, err error) {
	d := net.Dialer{Timeout: limit}
	if by.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(by, 0))
	}
	return c, n.Do(func() (err error) { c, err = d.Dial(protocol, to.String()); return err })
}

// SourceOf sends one request to an Echo, and returns the address by which it knows its client.
func SourceOf(c net.Conn, limit time.Duration) (_ netip.Addr, err error) {
	defer must.Catch(&err)
	must.OK(c.SetDeadline(time.Now().Add(limit)))
	must.Value(c.Write([]byte("?")))
	answer := make([]byte, 64)
	n := must.Value(c.Read(answer))
	return netip.ParseAddr(string(answer[:n]))
}

// Translate does what kube-proxy does on a node: it sends connections to an address to a backend of the
// same family.
func (n *Namespace) Translate(protocol string, to, backend netip.AddrPort) error {
	number := map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}[protocol]
	family, destination := nftables.TableFamilyIPv4, &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}
	if to.Addr().Is6() {
		family, destination.Offset, destination.Len = nftables.TableFamilyIPv6, 24, 16
	}
	return n.Do(func() error {
		c := must.Value(nftables.New())
		table := c.AddTable(&nftables.Table{Name: "services", Family: family})
		chain := c.AddChain(&nftables.Chain{
			Name: "prerouting", Table: table, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest,
		})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			destination,
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: to.Addr().AsSlice()},
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{number}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(to.Port())},
			&expr.Immediate{Register: 1, Data: backend.Addr().AsSlice()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(backend.Port())},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(family), RegAddrMin: 1, RegProtoMin: 2},
		}})
		return c.Flush()
	})
}
