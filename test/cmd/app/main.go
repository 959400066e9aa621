// SPDX-License-Identifier: Apache-2.0

// App is the only program in the images of the tests.
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
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
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
