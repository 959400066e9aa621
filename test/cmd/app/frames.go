// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// frames sends the Ethernet frames of the input from an interface: one a line, in hexadecimal digits.
// After each one it prints "sent", or "dropped" if the kernel says so. It needs CAP_NET_RAW.
func frames(args []string) error {
	flags := flag.NewFlagSet("app", flag.ContinueOnError)
	bypass := flags.Bool("bypass", false, "skip the queue of the interface, and its filters")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("one interface is needed")
	}
	device, err := net.InterfaceByName(flags.Arg(0))
	if err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	defer unix.Close(socket)
	if *bypass {
		if err := unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
			return fmt.Errorf("skip the queue of %s: %w", device.Name, err)
		}
	}
	return sendAll(socket, &unix.SockaddrLinklayer{Ifindex: device.Index})
}

func sendAll(socket int, to *unix.SockaddrLinklayer) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		frame, err := hex.DecodeString(lines.Text())
		if err != nil {
			return fmt.Errorf("read a frame: %w", err)
		}
		switch err := unix.Sendto(socket, frame, 0, to); {
		case errors.Is(err, unix.ENOBUFS):
			fmt.Println("dropped")
		case err != nil:
			return fmt.Errorf("send a frame: %w", err)
		default:
			fmt.Println("sent")
		}
	}
	return lines.Err()
}
