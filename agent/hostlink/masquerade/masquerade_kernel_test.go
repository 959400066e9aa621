// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package masquerade

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// The backend answers the pod directly if it sees the pod's address, and the pod drops this answer of
// an address that it did not ask.
func TestAServiceAnswersThroughTheNode(t *testing.T) {
	r := newRig(t)
	pod, same := r.pod(podHost), r.pod(podOnSame)
	for _, f := range families() {
		for _, protocol := range protocols() {
			r.other.Echo(r, protocol, netip.AddrPortFrom(addr(f.Name, otherHost), backendPort))
			same.Echo(r, protocol, netip.AddrPortFrom(addr(f.Name, podOnSame), backendPort))
			r.translate(protocol, clusterIP(f.Name, serviceOfOther), addr(f.Name, otherHost))
			r.translate(protocol, clusterIP(f.Name, serviceOfSame), addr(f.Name, podOnSame))
			r.wantHang("a backend of another node", pod, protocol, netip.AddrPortFrom(clusterIP(f.Name, serviceOfOther), servicePort))
			if protocol == "udp" { // TCP answers on the way of the mark
				r.wantHang("a backend of the same node", pod, protocol, netip.AddrPortFrom(clusterIP(f.Name, serviceOfSame), servicePort))
			}
		}
	}
	r.ensure()
	for _, f := range families() {
		node := addr(f.Name, nodeHost)
		for _, protocol := range protocols() {
			r.wantSource("a backend of another node", pod, protocol, netip.AddrPortFrom(clusterIP(f.Name, serviceOfOther), servicePort), node)
			r.wantSource("a backend of the same node", pod, protocol, netip.AddrPortFrom(clusterIP(f.Name, serviceOfSame), servicePort), node)
			r.wantSource("the pod is its own backend", same, protocol, netip.AddrPortFrom(clusterIP(f.Name, serviceOfSame), servicePort), node)
		}
	}
}

// Hardened nodes switch forwarding on for some interfaces only, and network services switch it off for theirs.
func TestANodeForwardsByTheInterfaceOfItsDefaultRoute(t *testing.T) {
	r := newRig(t)
	check.OK(r, r.node.AddDefaultRoute("ul0"))
	for _, step := range []struct{ setting, value, fault string }{
		{"conf/ul0/forwarding", "0", "net.ipv4.conf.ul0.forwarding is 0"},
		{"ip_forward", "0", "net.ipv4.conf.ul0.forwarding is 0"},
		{"conf/ul0/forwarding", "1", "<nil>"},
	} {
		check.OK(r, r.node.Do(func() error {
			err := os.WriteFile("/proc/sys/net/ipv4/"+step.setting, []byte(step.value), 0)
			check.Says(r, fmt.Sprint(ForwardingOff()["ipv4"]), step.fault)
			return err
		}))
	}
	pod := r.pod(podHost)
	r.other.Echo(r, "tcp", netip.AddrPortFrom(addr("ipv4", otherHost), backendPort))
	r.translate("tcp", clusterIP("ipv4", serviceOfOther), addr("ipv4", otherHost))
	r.ensure()
	r.wantSource("the interface forwards", pod, "tcp", netip.AddrPortFrom(clusterIP("ipv4", serviceOfOther), servicePort), addr("ipv4", nodeHost))
}

// A node port with externalTrafficPolicy Local: kube-proxy keeps the address of the client.
func TestAClientOfANodePortGetsTheAnswersOfThePod(t *testing.T) {
	r := newRig(t)
	pod := r.pod(podHost)
	for _, f := range families() {
		for _, protocol := range protocols() {
			pod.Echo(r, protocol, netip.AddrPortFrom(addr(f.Name, podHost), backendPort))
			r.translate(protocol, addr(f.Name, nodeHost), addr(f.Name, podHost))
		}
		r.wantHang("a node port", r.other, "udp", netip.AddrPortFrom(addr(f.Name, nodeHost), servicePort))
	}
	r.ensure()
	for _, f := range families() {
		port := netip.AddrPortFrom(addr(f.Name, nodeHost), servicePort)
		r.wantSource("a node port", r.other, "udp", port, addr(f.Name, nodeHost))
		r.wantSource("a node port", r.other, "tcp", port, addr(f.Name, otherHost))
	}
}

func TestOtherConnectionsKeepTheirAddresses(t *testing.T) {
	r := newRig(t)
	// The node may send from each of its addresses.
	for _, f := range families() {
		check.OK(r, r.node.AddAddr("ul0", netip.PrefixFrom(addr(f.Name, secondOfNode), addr(f.Name, secondOfNode).BitLen())))
	}
	pod, same := r.pod(podHost), r.pod(podOnSame)
	r.ensure()
	for _, f := range families() {
		for _, protocol := range protocols() {
			for server, host := range map[*network.Namespace]byte{pod: podHost, r.node: nodeHost, r.other: otherHost} {
				server.Echo(r, protocol, netip.AddrPortFrom(addr(f.Name, host), backendPort))
			}
			toPod := netip.AddrPortFrom(addr(f.Name, podHost), backendPort)
			r.wantSource("a host of the segment to a pod", r.other, protocol, toPod, addr(f.Name, otherHost))
			r.wantSource("the node to its pod", r.node, protocol, toPod, addr(f.Name, nodeHost))
			r.wantSource("a pod to a pod of its node", same, protocol, toPod, addr(f.Name, podOnSame))
			r.wantSource("a pod to its node", pod, protocol, netip.AddrPortFrom(addr(f.Name, nodeHost), backendPort), addr(f.Name, podHost))
			r.wantSource("a pod to a host", pod, protocol, netip.AddrPortFrom(addr(f.Name, otherHost), backendPort), addr(f.Name, podHost))
		}
		check.OK(r, r.node.Do(func() error {
			second := addr(f.Name, secondOfNode)
			c, err := net.DialUDP("udp", &net.UDPAddr{IP: second.AsSlice()}, &net.UDPAddr{IP: addr(f.Name, podHost).AsSlice(), Port: backendPort})
			if err != nil {
				return err
			}
			defer c.Close()
			got, err := network.SourceOf(c, patience)
			check.Equal(t, got, second, "the pod knows its node as")
			return err
		}))
		// A host that sends to the pod through its node, as a router may.
		r.through(r.other, addr(f.Name, podHost), addr(f.Name, nodeHost))
		toPod := netip.AddrPortFrom(addr(f.Name, podHost), backendPort)
		r.wantSource("a host to a pod through its node", r.other, "tcp", toPod, addr(f.Name, otherHost))
		got, err := sourceOf(r.other, "udp", toPod, patience)
		ofNode := got == addr(f.Name, nodeHost) || got == addr(f.Name, secondOfNode)
		check.That(t, err == nil && ofNode, "a host to a pod through its node over udp: the pod knows it as %s, %v; want an address of the node", got, err)
	}
}

// The pods of an overlay, which answer a pod of the underlay directly: the node sees half of the connection,
// which kube-proxy drops (its rule for packets in state INVALID).
func TestAListedDestinationAnswersTCPThroughTheNode(t *testing.T) {
	r := newRig(t)
	pod := r.pod(podHost)
	r.ensure()
	for _, f := range families() {
		check.OK(r, r.node.Do(func() error { return dropInvalid(f.nft) }))
		// A network behind the other host.
		server := netip.AddrPortFrom(listed(f.Name).Addr().Next(), backendPort)
		check.OK(r, r.other.AddAddr("eth0", netip.PrefixFrom(server.Addr(), listed(f.Name).Bits())))
		check.OK(r, r.node.AddRoute(listed(f.Name), addr(f.Name, otherHost)))
		r.other.Echo(r, "tcp", server)
		r.other.Echo(r, "udp", server)
		r.wantSource("a pod to a listed destination", pod, "tcp", server, addr(f.Name, nodeHost))
		r.wantSource("a pod to a listed destination", pod, "udp", server, addr(f.Name, podHost))
	}
}

// The host asks by the segment, and the pod answers by its node. Translated answers would be lost.
func TestAListedDestinationReachesAPod(t *testing.T) {
	r := newRig(t)
	pod := r.pod(podHost)
	r.ensure()
	for _, f := range families() {
		client := listed(f.Name).Addr().Next()
		check.OK(r, r.other.AddAddr("eth0", netip.PrefixFrom(client, listed(f.Name).Bits())))
		check.OK(r, r.node.AddRoute(listed(f.Name), addr(f.Name, otherHost)))
		server := netip.AddrPortFrom(addr(f.Name, podHost), backendPort)
		pod.Echo(r, "tcp", server)
		c := check.Value(r.other.Connect(client, "tcp", server, patience))(r)
		for range 2 { // the node tracks the connection from its second answer on
			check.Equal(t, check.Value(network.SourceOf(c, patience))(r), client, "%s: the pod knows the host as", f.Name)
		}
		check.OK(r, c.Close())
	}
}

// dropInvalid makes the node drop forwarded packets of no known connection, as kube-proxy does.
func dropInvalid(family nftables.TableFamily) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Name: "kube-proxy", Family: family})
	chain := c.AddChain(&nftables.Chain{
		Name: "forward", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: register},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitINVALID), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: make([]byte, 4)},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	return c.Flush()
}

// A pod answers a ping on the way of the mark.
func TestPingsThroughTheNodeKeepTheirAddresses(t *testing.T) {
	r := newRig(t)
	r.pod(podHost)
	r.ensure()
	for _, f := range families() {
		client, pod := addr(f.Name, otherHost), addr(f.Name, podHost)
		r.through(r.other, pod, addr(f.Name, nodeHost))
		check.Eventually(r, 2*patience, "a ping is answered", func() error { return r.other.Do(func() error { return ping(f, pod) }) })
		var flows []*netlink.ConntrackFlow
		check.OK(r, r.node.Do(func() (err error) {
			flows, err = netlink.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(f.nft))
			return err
		}))
		kept := slices.ContainsFunc(flows, func(flow *netlink.ConntrackFlow) bool {
			return flow.Forward.Protocol == f.icmp && flow.Forward.DstIP.Equal(pod.AsSlice()) && flow.Reverse.DstIP.Equal(client.AsSlice())
		})
		check.That(t, kept, "%s: the ping was translated: %v", f.Name, flows)
	}
}

// ping sends an echo request, and waits for the reply.
func ping(f Family, to netip.Addr) error {
	network, listen, request, reply := "ip4:icmp", "0.0.0.0", icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply)
	if f.Name == "ipv6" {
		network, listen, request, reply = "ip6:ipv6-icmp", "::", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	c, err := icmp.ListenPacket(network, listen)
	if err != nil {
		return err
	}
	defer c.Close()
	message, err := (&icmp.Message{Type: request, Body: &icmp.Echo{ID: 1, Seq: 1}}).Marshal(nil)
	if err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(patience / 10)); err != nil {
		return err
	}
	if _, err := c.WriteTo(message, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return err
	}
	for answer := make([]byte, 256); ; {
		n, from, err := c.ReadFrom(answer)
		if err != nil {
			return err
		}
		got, err := icmp.ParseMessage(int(f.icmp), answer[:n])
		if err == nil && got.Type == reply && from.String() == to.String() {
			return nil
		}
	}
}

// through routes an address by a gateway.
func (r *rig) through(host *network.Namespace, to, gateway netip.Addr) {
	r.Helper()
	check.OK(r, host.AddRoute(netip.PrefixFrom(to, to.BitLen()), gateway))
}

// A connection keeps its translation in conntrack.
func TestConnectionsOutliveTheRules(t *testing.T) {
	r := newRig(t)
	pod := r.pod(podHost)
	r.ensure()
	var open []net.Conn
	for _, f := range families() {
		for _, protocol := range protocols() {
			r.other.Echo(r, protocol, netip.AddrPortFrom(addr(f.Name, otherHost), backendPort))
			r.translate(protocol, clusterIP(f.Name, serviceOfOther), addr(f.Name, otherHost))
			open = append(open, r.connect(pod, protocol, netip.AddrPortFrom(clusterIP(f.Name, serviceOfOther), servicePort)))
		}
	}
	goOn := func(when string) {
		t.Helper()
		for _, c := range open {
			check.Is(t, check.Err(network.SourceOf(c, patience)), nil, "%s: the connection to %s:", when, c.RemoteAddr())
		}
	}
	goOn("at first")
	r.ensure() // a restart
	goOn("after a restart")
	check.OK(r, r.node.Do(func() error { return each(hostlink.Ruleset.Write) })) // an upgrade
	goOn("after an upgrade")
	check.OK(r, r.node.Do(Remove))
	goOn("after the removal")
	r.ensure()
	goOn("after a new installation")
	// Also the translation of destinations is flushed.
	check.OK(r, r.node.Do(flush))
	r.ensure()
	goOn("after a flush")
}

func flush() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.FlushRuleset()
	return c.Flush()
}

// connect opens a connection that ends with the test.
func (r *rig) connect(client *network.Namespace, protocol string, to netip.AddrPort) net.Conn {
	r.Helper()
	c := check.Value(client.Connect(netip.Addr{}, protocol, to, patience))(r)
	r.Cleanup(func() { _ = c.Close() })
	return c
}

func TestNoConnectionMeetsAReplacementWithoutRules(t *testing.T) {
	r := newRig(t)
	pod := r.pod(podHost)
	r.ensure()
	f := families()[0]
	r.other.Echo(r, "udp", netip.AddrPortFrom(addr(f.Name, otherHost), backendPort))
	r.translate("udp", clusterIP(f.Name, serviceOfOther), addr(f.Name, otherHost))
	var written atomic.Int32
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- r.node.Do(func() error {
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				if err := each(hostlink.Ruleset.Write); err != nil {
					return err
				}
				written.Add(1)
			}
		})
	}()
	for n := 0; !t.Failed() && (n < 200 || written.Load() < 50); n++ {
		r.wantSource("during a replacement", pod, "udp", netip.AddrPortFrom(clusterIP(f.Name, serviceOfOther), servicePort), addr(f.Name, nodeHost))
	}
	close(stop)
	check.OK(r, <-ended)
}

func TestWhatIsMissingIsNamedAndRepaired(t *testing.T) {
	r := newRig(t)
	for _, f := range families() {
		for _, row := range []struct {
			does  string
			spoil func(c *nftables.Conn, t *nftables.Table, chain *nftables.Chain) error
			want  string
		}{
			{"nothing was made", nil, "there is no table"},
			{"a rule is deleted", func(c *nftables.Conn, t *nftables.Table, chain *nftables.Chain) error {
				all, err := c.GetRules(t, chain)
				if err != nil {
					return err
				}
				return c.DelRule(all[1])
			}, `rule "connections" is missing`},
			{"a rule is put before", func(c *nftables.Conn, t *nftables.Table, chain *nftables.Chain) error {
				c.InsertRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{&expr.Counter{}}})
				return nil
			}, `rule "Services" is missing`},
			{"a rule is put behind", func(c *nftables.Conn, t *nftables.Table, chain *nftables.Chain) error {
				c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{&expr.Counter{}}})
				return nil
			}, "4 rules, not 3"},
			{"the rules are flushed", func(c *nftables.Conn, t *nftables.Table, _ *nftables.Chain) error {
				c.FlushTable(t)
				return nil
			}, `rule "Services" is missing`},
			{"the chain has another priority", func(c *nftables.Conn, t *nftables.Table, chain *nftables.Chain) error {
				c.DelChain(chain)
				chain.Priority = nftables.ChainPriorityNATSource
				c.AddChain(chain)
				return nil
			}, "with priority 99"},
			{"the chain is gone", func(c *nftables.Conn, t *nftables.Table, chain *nftables.Chain) error {
				c.FlushChain(chain)
				c.DelChain(chain)
				return nil
			}, "chain postrouting"},
			{"the table is gone", func(c *nftables.Conn, t *nftables.Table, _ *nftables.Chain) error {
				c.DelTable(t)
				return nil
			}, "there is no table"},
		} {
			check.OK(r, r.node.Do(func() error {
				if row.spoil != nil {
					c, err := nftables.New()
					if err != nil {
						return err
					}
					t, chain := rulesetOf(f).Table, rulesetOf(f).Chain
					if err := errors.Join(row.spoil(c, t, chain), c.Flush()); err != nil {
						return err
					}
				}
				err := f.do(hostlink.Ruleset.Check)
				check.Is(t, err, hostlink.ErrIncomplete, "%s, %s:", f.Name, row.does)
				check.Says(t, err, row.want)
				check.Is(t, f.do(hostlink.Ruleset.Ensure), nil, "%s, %s:", f.Name, row.does)
				check.Is(t, f.do(hostlink.Ruleset.Check), nil, "%s, %s: after the repair:", f.Name, row.does)
				return nil
			}))
		}
	}
}

func TestRulesThatAreRightStay(t *testing.T) {
	r := newRig(t)
	f := families()[0]
	r.ensure()
	// A new table would not have this chain.
	check.OK(r, r.node.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		t := rulesetOf(f).Table
		c.AddChain(&nftables.Chain{Name: "witness", Table: t})
		if err := errors.Join(c.Flush(), Ensure()); err != nil {
			return err
		}
		_, err = c.ListChain(t, "witness")
		return err
	}))
	for range 2 {
		check.OK(r, r.node.Do(Remove))
	}
	check.Is(t, r.node.Do(Check), hostlink.ErrIncomplete, "after the removal:")
}
