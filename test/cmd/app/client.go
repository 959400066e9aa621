// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// get prints what an HTTP server answers.
func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}

// dial prints the first line that a TCP server says.
func dial(ctx context.Context, address string) error {
	conn, err := connect(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	fmt.Print(line)
	return err
}

// send sends a datagram and prints the answer.
func send(ctx context.Context, address string) error {
	conn, err := connect(ctx, "udp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	answer := make([]byte, 1500)
	n, err := conn.Read(answer)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n", answer[:n])
	return nil
}

// connect opens a connection that ends with ctx.
func connect(ctx context.Context, protocol, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, protocol, address)
	if err != nil {
		return nil, err
	}
	return conn, limit(ctx, conn)
}

// resolve prints the addresses of a name, one on each line.
func resolve(ctx context.Context, name string) error {
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	for _, a := range addresses {
		fmt.Println(a)
	}
	return err
}

// ping sends one echo request and prints the time until its answer.
func ping(ctx context.Context, address string) error {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return err
	}
	network, kind, protocol := "ip4:icmp", icmp.Type(ipv4.ICMPTypeEcho), ipv4.ICMPTypeEcho.Protocol()
	if addr.Is6() {
		network, kind, protocol = "ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoRequest.Protocol()
	}
	conn, err := net.ListenPacket(network, "")
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := limit(ctx, conn); err != nil {
		return err
	}
	id := os.Getpid() & 0xffff
	request, err := (&icmp.Message{Type: kind, Body: &icmp.Echo{ID: id, Seq: 1}}).Marshal(nil)
	if err != nil {
		return err
	}
	started := time.Now()
	if _, err := conn.WriteTo(request, &net.IPAddr{IP: addr.AsSlice()}); err != nil {
		return err
	}
	return awaitEcho(conn, protocol, id, started)
}

func awaitEcho(conn net.PacketConn, protocol, id int, started time.Time) error {
	data := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(data)
		if err != nil {
			return err
		}
		message, err := icmp.ParseMessage(protocol, data[:n])
		if err != nil || message.Type != ipv4.ICMPTypeEchoReply && message.Type != ipv6.ICMPTypeEchoReply {
			continue
		}
		if echo, ok := message.Body.(*icmp.Echo); ok && echo.ID == id {
			fmt.Printf("%s answers after %s\n", from, time.Since(started).Round(time.Microsecond))
			return nil
		}
	}
}

// limit ends all reads and writes with ctx.
func limit(ctx context.Context, conn interface{ SetDeadline(time.Time) error }) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		return errors.New("a client needs a time limit")
	}
	return conn.SetDeadline(deadline)
}
