// SPDX-License-Identifier: Apache-2.0

// App is the only program in the images of the tests, and in the virtual machine that migrates, with its init.
//
//	pause                     as the sandbox: wait for a signal and reap
//	app serve [-stubborn]     serve HTTP on 8080, TCP and UDP on 7000, and gRPC health on 7001
//	app get URL               print what an HTTP server answers
//	app cat                   print the input
//	app frames [-bypass] DEV  send the frames of the input from an interface
//
// The answers of the servers start with the host name, which is the pod's name. So a client knows which
// pod speaks for an address. HTTP and UDP answer with the address of the client as well.
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
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/guest"
	"github.com/fenceline/fenceline/test/must"
)

func main() {
	if guest.IsInit() {
		guest.Init()
	}
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == "pause" {
		args = []string{"pause"}
	}
	if err := run(args); err != nil {
		fmt.Fprintln(os.Stderr, "app:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	switch verb, rest := args[0], args[1:]; verb {
	case "pause":
		pause()
		return nil
	case "serve":
		return serve(len(rest) > 0 && rest[0] == "-stubborn")
	case "get":
		if len(rest) != 1 {
			return errors.New("one URL is needed")
		}
		return get(rest[0])
	case "cat":
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	case "frames":
		return frames(rest)
	default:
		return fmt.Errorf("no verb %q: pause, serve, get, cat or frames", verb)
	}
}

// pause waits for SIGINT or SIGTERM. As the first process of a PID namespace it reaps those of other containers.
func pause() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

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
