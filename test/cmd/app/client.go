// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"flag"
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
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/must"
)

// get prints what an HTTP server answers.
func get(ctx context.Context, url string) (err error) {
	defer must.Catch(&err)
	request := must.Value(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))
	response, err := http.DefaultClient.Do(request)
	must.OK(err)
	defer response.Body.Close()
	must.Value(io.Copy(os.Stdout, response.Body))
	must.That(response.StatusCode == http.StatusOK, "%s: %s", url, response.Status)
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
func send(ctx context.Context, address string) (err error) {
	defer must.Catch(&err)
	conn := must.Value(connect(ctx, "udp", address))
	defer conn.Close()
	must.Value(conn.Write([]byte("hello")))
	answer := make([]byte, 1500)
	n := must.Value(conn.Read(answer))
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
func ping(ctx context.Context, address string) (err error) {
	defer must.Catch(&err)
	addr := must.Value(netip.ParseAddr(address))
	network, kind, protocol := "ip4:icmp", icmp.Type(ipv4.ICMPTypeEcho), ipv4.ICMPTypeEcho.Protocol()
	if addr.Is6() {
		network, kind, protocol = "ip6:ipv6-icmp", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoRequest.Protocol()
	}
	conn := must.Value(net.ListenPacket(network, ""))
	defer conn.Close()
	must.OK(limit(ctx, conn))
	id := os.Getpid() & 0xffff
	request := must.Value((&icmp.Message{Type: kind, Body: &icmp.Echo{ID: id, Seq: 1}}).Marshal(nil))
	started := time.Now()
	must.Value(conn.WriteTo(request, &net.IPAddr{IP: addr.AsSlice()}))
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

// frames sends the Ethernet frames of the input from an interface: one a line, in hexadecimal digits.
// After each one it prints "sent", or "dropped" if the kernel says so. It needs CAP_NET_RAW.
func frames(args []string) (err error) {
	defer must.Catch(&err)
	flags := flag.NewFlagSet("app", flag.ContinueOnError)
	bypass := flags.Bool("bypass", false, "skip the queue of the interface, and its filters")
	must.OK(flags.Parse(args))
	must.That(flags.NArg() == 1, "one interface is needed")
	device := must.Value(net.InterfaceByName(flags.Arg(0)))
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	must.Done(err, "open a packet socket")
	defer unix.Close(socket)
	if *bypass {
		must.Done(unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1), "skip the queue of %s", device.Name)
	}
	sendAll(socket, &unix.SockaddrLinklayer{Ifindex: device.Index})
	return nil
}

func sendAll(socket int, to *unix.SockaddrLinklayer) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		frame, err := hex.DecodeString(lines.Text())
		must.Done(err, "read a frame")
		switch err := unix.Sendto(socket, frame, 0, to); {
		case errors.Is(err, unix.ENOBUFS):
			fmt.Println("dropped")
		case err != nil:
			panic(must.Failure("send a frame: %w", err))
		default:
			fmt.Println("sent")
		}
	}
	must.OK(lines.Err())
}
