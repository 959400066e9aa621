// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package nodes_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/programs"
)

// patience is the time in which an expected answer must come in an emulated machine, tryLimit the
// time for one request.
const patience, tryLimit = 30 * time.Second, 3 * time.Second

// newInGuest makes two nodes of a guest, with the addresses 192.0.2.1 and .2 on their parents, which
// forward packets.
func newInGuest(t *testing.T) (*nodes.Cluster, network.LAN) {
	t.Helper()
	lan := network.NewLAN(t)
	var hosts []*network.Namespace
	for number := 1; number <= 2; number++ {
		host := lan.Host(t, namespaces.NodeName(number), namespaces.Parent, netip.PrefixFrom(nodeAddress(number), 24))
		check.OK(t, host.Forward())
		hosts = append(hosts, host)
	}
	return nodes.On(t, namespaces.On(t, programs.Dir(), lan, hosts...)), lan
}

func nodeAddress(number int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(number)}) }

// attached makes a pod by a reference plugin with some fields. Fenceline is chained to it.
func attached(t *testing.T, n *nodes.Node, name, plugin string, change ...func(*corev1.Pod)) *nodes.Sandbox {
	t.Helper()
	n.Make = func(pod *corev1.Pod) (*nodes.Sandbox, error) { return n.NewSandboxOf(pod, chainOf(n, plugin), nil) }
	ctx := within(t, nodes.Limit)
	return started(ctx, t, n, name, func(pod *corev1.Pod) {
		for _, c := range change {
			c(pod)
		}
	})
}

// chainOf is the configuration of a network: the fields of its plugin, and Fenceline behind it.
func chainOf(n *nodes.Node, plugin string) []byte {
	return fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"underlay","plugins":[{%s,"ipam":%s},%s]}`, plugin, n.IPAM(), n.Chained())
}

// serve answers each request with the address of its client, until the test ends.
func serve(t *testing.T, at *network.Namespace, protocol string, addr netip.AddrPort) {
	t.Helper()
	answer := func(client net.Addr) []byte {
		a, _ := netip.ParseAddrPort(client.String())
		return []byte(a.Addr().Unmap().String())
	}
	if protocol == "udp" {
		var c net.PacketConn
		check.OK(t, at.Do(func() (err error) { c, err = net.ListenPacket(protocol, addr.String()); return err }))
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
	check.OK(t, at.Do(func() (err error) { l, err = net.Listen(protocol, addr.String()); return err }))
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

// open connects a host with a server from the address by; the kernel chooses one if by is invalid.
func open(from *network.Namespace, by netip.Addr, protocol string, to netip.AddrPort) (c net.Conn, err error) {
	d := net.Dialer{Timeout: tryLimit}
	if by.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(by, 0))
	}
	return c, from.Do(func() (err error) { c, err = d.Dial(protocol, to.String()); return err })
}

// ask returns the address by which a server knows its client.
func ask(c net.Conn, limit time.Duration) (netip.Addr, error) {
	answer := make([]byte, 64)
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return netip.Addr{}, err
	}
	if _, err := c.Write([]byte("?")); err != nil {
		return netip.Addr{}, err
	}
	n, err := c.Read(answer)
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.ParseAddr(string(answer[:n]))
}

// knows fails the test unless a server answers, and knows the client by the wanted address.
func knows(t *testing.T, what string, from *network.Namespace, by netip.Addr, protocol string, to netip.AddrPort, want netip.Addr) {
	t.Helper()
	var got netip.Addr
	check.Eventually(t, patience, what, func() error {
		c, err := open(from, by, protocol, to)
		if err != nil {
			return err
		}
		defer c.Close()
		got, err = ask(c, tryLimit)
		return err
	})
	check.Equal(t, got, want, "%s: the client is known as", what)
}
