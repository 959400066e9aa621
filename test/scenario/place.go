// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/test/cluster"
	steps "github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/network"
)

// requestLimit is how long one request may take.
const requestLimit = 2 * time.Second

// place is the network of a pod, a node or a host. Its requests run in this process.
type place struct {
	name string
	ns   *network.Namespace
}

// reply is what the test app answers.
type reply struct {
	pod string
	// client is the address that the pod saw; TCP greetings have none.
	client netip.Addr
}

// placeOf opens the network of a pod until the end of the scenario.
func (a *act) placeOf(pod *cluster.Pod) place {
	ns := value(pod.Enter())
	a.after("leave pod "+pod.Name, func(context.Context) { check(ns.Close()) })
	return place{"pod " + pod.Name, ns}
}

func placeOfNode(node *cluster.Node) place { return place{"node " + node.Name(), node.Namespace()} }

// dial connects and limits the time of everything on the connection.
func (p place) dial(ctx context.Context, protocol string, to netip.AddrPort) (conn net.Conn, err error) {
	defer steps.Catch(&err)
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	check(p.ns.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, protocol, to.String())
		return err
	}))
	return conn, conn.SetDeadline(time.Now().Add(requestLimit))
}

// get asks by HTTP.
func (p place) get(ctx context.Context, to netip.AddrPort) (_ reply, err error) {
	defer steps.Catch(&err)
	conn := value(p.dial(ctx, "tcp", to))
	defer conn.Close()
	value(io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	check(err)
	defer response.Body.Close()
	return parseReply(string(value(io.ReadAll(response.Body))))
}

// send asks by a datagram.
func (p place) send(ctx context.Context, to netip.AddrPort) (_ reply, err error) {
	defer steps.Catch(&err)
	conn := value(p.dial(ctx, "udp", to))
	defer conn.Close()
	value(io.WriteString(conn, "hello"))
	text := make([]byte, 1500)
	n := value(conn.Read(text))
	return parseReply(string(text[:n]))
}

// handshake connects by TLS, and trusts the cluster's authority for that name.
func (p place) handshake(ctx context.Context, to netip.AddrPort, config *tls.Config) (err error) {
	defer steps.Catch(&err)
	conn := value(p.dial(ctx, "tcp", to))
	defer conn.Close()
	return tls.Client(conn, config).HandshakeContext(ctx)
}

// ping sends one echo request and waits for its answer.
func (p place) ping(addr netip.Addr) (err error) {
	defer steps.Catch(&err)
	network, kind, answer := "ip4:icmp", icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply)
	if addr.Is6() {
		network, kind, answer = "ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	var conn net.PacketConn
	check(p.ns.Do(func() (err error) { conn, err = net.ListenPacket(network, ""); return err }))
	defer conn.Close()
	check(conn.SetDeadline(time.Now().Add(requestLimit)))
	request := value((&icmp.Message{Type: kind, Body: &icmp.Echo{ID: 7, Seq: 1}}).Marshal(nil))
	value(conn.WriteTo(request, &net.IPAddr{IP: addr.AsSlice()}))
	data := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(data)
		check(err)
		message, err := icmp.ParseMessage(answer.Protocol(), data[:n])
		if err == nil && message.Type == answer && from.String() == addr.String() {
			return nil
		}
	}
}

// resolve asks a name server for the addresses of a name.
func (p place) resolve(ctx context.Context, server netip.Addr, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, protocol, _ string) (net.Conn, error) {
		return p.dial(ctx, protocol, netip.AddrPortFrom(server, 53))
	}}
	found, err := resolver.LookupNetIP(ctx, "ip", name+".")
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found, err
}

// parseReply reads "NAME HOST:PORT", with more behind it or not.
func parseReply(text string) (reply, error) {
	words := strings.Fields(text)
	if len(words) < 2 {
		return reply{}, fmt.Errorf("the answer %q is not of the test app", text)
	}
	client, err := netip.ParseAddrPort(words[1])
	return reply{words[0], client.Addr().Unmap()}, err
}

const (
	// pathLimit is how long a path may take to work: kube-proxy and CoreDNS have to learn of endpoints
	// first, and CoreDNS keeps an early answer for its TTL.
	pathLimit = time.Minute
	// pathsAtOnce bounds the load of all paths on the machine.
	pathsAtOnce = 16
)

// path is one way through the cluster.
type path struct {
	name string
	walk func(context.Context)
}

// paths is a list of ways, for both families.
type paths []path

// get adds a way by HTTP. pod answers; client is the address that it sees, unless that is invalid.
func (p *paths) get(from place, what string, to netip.AddrPort, pod string, client netip.Addr) {
	p.ask(from, "HTTP", what, to, pod, client, place.get)
}

// send adds a way by UDP.
func (p *paths) send(from place, what string, to netip.AddrPort, pod string, client netip.Addr) {
	p.ask(from, "UDP", what, to, pod, client, place.send)
}

func (p *paths) ask(from place, protocol, what string, to netip.AddrPort, pod string, client netip.Addr, by func(place, context.Context, netip.AddrPort) (reply, error)) {
	p.add(fmt.Sprintf("%s to %s (%s %s)", from.name, what, protocol, to), func(ctx context.Context) {
		got := value(by(from, ctx, to))
		must(got.pod == pod, "%s answered, not %s", got.pod, pod)
		must(!client.IsValid() || got.client == client, "%s saw the client %s, not %s", got.pod, got.client, client)
	})
}

// ping adds a way of an echo request and its answer.
func (p *paths) ping(from place, what string, to netip.Addr) {
	p.add(fmt.Sprintf("%s to %s (ping %s)", from.name, what, to), func(context.Context) { check(from.ping(to)) })
}

// resolve adds a question to a name server.
func (p *paths) resolve(from place, server netip.Addr, name string, want []netip.Addr) {
	p.add(fmt.Sprintf("%s to the addresses of %s (DNS %s)", from.name, name, server), func(ctx context.Context) {
		got := slices.SortedFunc(slices.Values(value(from.resolve(ctx, server, name))), netip.Addr.Compare)
		want := slices.SortedFunc(slices.Values(want), netip.Addr.Compare)
		must(slices.Equal(got, want), "they are %v, not %v", got, want)
	})
}

func (p *paths) add(name string, walk func(context.Context)) { *p = append(*p, path{name, walk}) }

// walk takes all ways at the same time, each until it works once. The error names all that did not.
func (p paths) walk(ctx context.Context) error {
	errs := make([]error, len(p))
	var group errgroup.Group
	group.SetLimit(pathsAtOnce)
	for i, way := range p {
		group.Go(func() error {
			errs[i] = attempt(func() { eventually(ctx, pathLimit, way.name, way.walk) })
			return nil
		})
	}
	_ = group.Wait() // its functions return no errors
	if err := errors.Join(errs...); err != nil {
		failed := len(slices.DeleteFunc(errs, func(err error) bool { return err == nil }))
		return fmt.Errorf("%d of %d ways do not work: %w", failed, len(p), err)
	}
	return nil
}
