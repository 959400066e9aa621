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

	"github.com/fenceline/fenceline/test/must"
)

const (
	httpAddress = ":8080"
	echoAddress = ":7000" // TCP and UDP
	grpcAddress = ":7001"
)

// serve answers until SIGTERM. A stubborn server ignores SIGTERM, as a process
// does that hangs in its own shutdown; only SIGKILL ends it.
func serve(stubborn bool) (err error) {
	defer must.Catch(&err)
	name := must.Value(os.Hostname())
	stop := make(chan os.Signal, 1)
	if stubborn {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	} else {
		signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	}
	streams := must.Value(net.Listen("tcp", echoAddress))
	datagrams := must.Value(net.ListenPacket("udp", echoAddress))
	calls := must.Value(net.Listen("tcp", grpcAddress))
	failed := make(chan error, 4)
	go func() { failed <- echo(streams, name) }()
	go func() { failed <- echoDatagrams(datagrams, name) }()
	go func() { failed <- serveHealth(calls) }()
	go func() {
		failed <- http.ListenAndServe(httpAddress, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s\n", name, r.RemoteAddr)
		}))
	}()
	fmt.Printf("%s serves HTTP on %s, TCP and UDP on %s, and gRPC health on %s\n", name, httpAddress, echoAddress, grpcAddress)
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

// echoDatagrams answers each datagram with the name, its sender and its content.
func echoDatagrams(conn net.PacketConn, name string) error {
	content := make([]byte, 1500)
	for {
		n, peer, err := conn.ReadFrom(content)
		if err != nil {
			return err
		}
		_, _ = conn.WriteTo(fmt.Appendf(nil, "%s %s %s", name, peer, content[:n]), peer) // a lost datagram is no fault
	}
}

// serveHealth answers gRPC probes of the kubelet. Its answer is always the same, and grpc-go is 66 packages to build.
func serveHealth(listener net.Listener) error {
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		// Not compressed, 2 bytes: field 1, a varint, of grpc.health.v1.HealthCheckResponse is 1, SERVING.
		_, _ = w.Write([]byte{0, 0, 0, 0, 2, 1 << 3, 1})
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	})}
	return server.Serve(listener)
}
