// SPDX-License-Identifier: Apache-2.0

// App is the only program in the images of the tests.
//
//	pause                     as the sandbox: wait for a signal and reap
//	app serve [-stubborn]     serve HTTP on 8080, TCP and UDP on 7000, and gRPC health on 7001
//	app get URL               print what an HTTP server answers
//	app dial HOST:PORT        print the first line of a TCP server
//	app send HOST:PORT        send a datagram and print the answer
//	app ping ADDRESS          print the time of an ICMP echo
//	app resolve NAME          print the addresses of a name
//	app cat                   print the input
//	app frames [-bypass] DEV  send the frames of the input from an interface
//
// A client waits for 3 s at most; -timeout after its verb changes that. The answers of the servers
// start with the host name, which is the pod's name. So a client knows which pod speaks for an
// address. HTTP and UDP answer with the address of the client as well.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fenceline/fenceline/test/must"
)

func main() {
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
		return client(get, rest)
	case "dial":
		return client(dial, rest)
	case "send":
		return client(send, rest)
	case "ping":
		return client(ping, rest)
	case "resolve":
		return client(resolve, rest)
	case "cat":
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	case "frames":
		return frames(rest)
	default:
		return fmt.Errorf("no verb %q: pause, serve, get, dial, send, ping, resolve, cat or frames", verb)
	}
}

// client runs a verb with its time limit.
func client(verb func(ctx context.Context, target string) error, args []string) (err error) {
	defer must.Catch(&err)
	flags := flag.NewFlagSet("app", flag.ContinueOnError)
	timeout := flags.Duration("timeout", 3*time.Second, "time limit")
	must.OK(flags.Parse(args))
	must.That(flags.NArg() == 1, "one target is needed")
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	return verb(ctx, flags.Arg(0))
}

// pause waits for SIGINT or SIGTERM. As the first process of a PID namespace it
// reaps the processes that other containers leave behind.
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
