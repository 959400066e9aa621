// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

const (
	httpAddress = ":8080"
	echoAddress = ":7000"
)

// serve answers until SIGTERM. A stubborn server ignores SIGTERM, as a process
// does that hangs in its own shutdown; only SIGKILL ends it.
func serve(stubborn bool) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	if stubborn {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	} else {
		signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	}
	listener, err := net.Listen("tcp", echoAddress)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- echo(listener, name) }()
	go func() {
		failed <- http.ListenAndServe(httpAddress, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s\n", name, r.RemoteAddr)
		}))
	}()
	fmt.Printf("%s serves HTTP on %s and TCP on %s\n", name, httpAddress, echoAddress)
	select {
	case err := <-failed:
		return err
	case <-stop:
		return nil
	}
}

// echo greets each connection with the name and returns what it receives.
func echo(listener net.Listener, name string) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			if _, err := fmt.Fprintln(conn, name); err != nil {
				return
			}
			_, _ = io.Copy(conn, conn) // ends with the peer, in whatever way that ends
		}()
	}
}
