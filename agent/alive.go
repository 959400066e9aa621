// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
)

// AnswerAlive serves /healthz, and nothing else, until stop is called: an agent that waits for the
// API server is alive but not ready. With the address "0" it serves nothing, as the manager does.
func AnswerAlive(address string, log logr.Logger) (stop func(), err error) {
	if address == "0" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for liveness probes: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error(err, "liveness probes are not answered")
		}
	}()
	return func() {
		if err := server.Close(); err != nil {
			log.Error(err, "the server of liveness probes could not be stopped")
		}
		<-done
	}, nil
}
