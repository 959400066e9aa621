// SPDX-License-Identifier: Apache-2.0

// Package page serves a page for people: the pools as grids, live, and an explanation of each lease. It
// only reads, from the cache of the controller. Every request for data needs a token with the rights of
// the ClusterRole fenceline-view.
package page

import (
	"context"
	"crypto/tls"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/reclaim"
	"github.com/fenceline/fenceline/internal/access"
)

// AllowedFor is the time for which an answer of the API server about a token counts.
const AllowedFor = 10 * time.Second

const shutdownGrace = 3 * time.Second

// Server serves the page. Add it to a manager. Every replica of the controller serves it.
type Server struct {
	// Address has the form host:port. On a loopback address the page is served by HTTP, for kubectl
	// port-forward. On any other address it is served by TLS, because requests carry tokens.
	Address string
	// CertDir holds tls.crt and tls.key, which may change at any time. If it is empty, the server
	// makes a self-signed certificate.
	CertDir string
	// Reader reads through the cache of the controller, with its index LeasesByPool.
	Reader client.Reader
	// Watch passes each change of pools and leases to the feed, after Reader has it.
	Watch func(context.Context, *Feed) error
	Judge *access.Judge
	// Explain returns the controller's decision about a lease.
	Explain func(context.Context, *v1alpha1.IPLease) (reclaim.Action, error)
	// Assets are index.html and its files.
	Assets fs.FS
	Log    logr.Logger

	feed *Feed
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Server) NeedLeaderElection() bool { return false }

// Start serves until ctx is done.
func (s *Server) Start(ctx context.Context) error {
	listener, err := s.listen(ctx)
	if err != nil {
		return fmt.Errorf("serve the page on %s: %w", s.Address, err)
	}
	server := &http.Server{
		Handler:           s.Handler(),
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends the streams
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(logr.ToSlogHandler(s.Log), slog.LevelDebug),
	}
	if err := s.Follow(ctx); err != nil {
		return errors.Join(err, listener.Close())
	}
	s.Log.Info("serving the page", "address", listener.Addr().String())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve the page on %s: %w", s.Address, err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return errors.Join(err, server.Close())
	}
	return nil
}

// Follow begins to watch, after Handler was called.
func (s *Server) Follow(ctx context.Context) error {
	if err := s.Watch(ctx, s.feed); err != nil {
		return fmt.Errorf("watch leases for the page: %w", err)
	}
	return nil
}

func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return nil, err
	}
	if at, ok := listener.Addr().(*net.TCPAddr); ok && at.IP.IsLoopback() {
		return listener, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if s.CertDir == "" {
		var pair tls.Certificate
		cert, key, err := certutil.GenerateSelfSignedCertKeyWithFixtures("localhost", []net.IP{{127, 0, 0, 1}}, nil, "")
		if err == nil {
			pair, err = tls.X509KeyPair(cert, key)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("make a certificate: %w", err), listener.Close())
		}
		config.Certificates = []tls.Certificate{pair}
		return tls.NewListener(listener, config), nil
	}
	watcher, err := certwatcher.New(filepath.Join(s.CertDir, "tls.crt"), filepath.Join(s.CertDir, "tls.key"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the certificate in %s: %w", s.CertDir, err), listener.Close())
	}
	go func() {
		if err := watcher.Start(ctx); err != nil {
			s.Log.Error(err, "the certificate of the page is not watched", "directory", s.CertDir)
		}
	}()
	config.GetCertificate = watcher.GetCertificate
	return tls.NewListener(listener, config), nil
}

// needs are the rights of everybody who sees the page.
func needs(*http.Request) []access.Need {
	const group = "fenceline.io"
	return []access.Need{
		{Verb: "list", Group: group, Resource: "ipleases"},
		{Verb: "list", Group: group, Resource: "ippools"},
		{Verb: "list", Group: group, Resource: "reservedips"},
	}
}

// policy lets the page load only its own files, and lets no other page frame it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// Handler returns the routes of the page. Call it once.
func (s *Server) Handler() http.Handler {
	s.feed = newFeed()
	data := http.NewServeMux()
	data.HandleFunc("GET /api/pools", s.pools)
	data.HandleFunc("GET /api/pools/{name}", s.pool)
	data.HandleFunc("GET /api/leases/{name}", s.lease)
	data.HandleFunc("GET /api/events", s.events)
	all := http.NewServeMux()
	all.Handle("/api/", s.Judge.Filter(s.Log, needs, data))
	all.Handle("/", http.FileServerFS(s.Assets))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			w.Header().Set(name, value)
		}
		all.ServeHTTP(w, r)
	})
}

// dist is built by `make ui` from web. It is in git, so nobody who builds the controller needs Node.
//
//go:embed dist
var dist embed.FS

// Assets returns the files of the page.
func Assets() (fs.FS, error) { return fs.Sub(dist, "dist") }
