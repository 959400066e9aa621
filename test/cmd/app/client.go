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
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/must"
)

// get prints what an HTTP server answers within 3 s.
func get(url string) (err error) {
	defer must.Catch(&err)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	request := must.Value(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))
	response, err := http.DefaultClient.Do(request)
	must.OK(err)
	defer response.Body.Close()
	must.Value(io.Copy(os.Stdout, response.Body))
	must.That(response.StatusCode == http.StatusOK, "%s: %s", url, response.Status)
	return nil
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
