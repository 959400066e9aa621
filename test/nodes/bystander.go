// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/network"
)

// Moment is an event that a bystander sees.
type Moment string

// The moments between plugin and agent, between agent and API server, and on the wire. "Sent": the
// API server has not got the call yet. "Done": the caller does not know yet that it took effect.
const (
	AddCalled   Moment = "ADD is called"
	AddAnswered Moment = "ADD is answered"
	DelCalled   Moment = "DEL is called"
	DelAnswered Moment = "DEL is answered"

	GetSent    Moment = "GET of a lease is sent"
	CreateSent Moment = "create of a lease is sent"
	CreateDone Moment = "create of a lease is done"
	UpdateSent Moment = "update of a lease is sent"
	UpdateDone Moment = "update of a lease is done"
	DeleteSent Moment = "delete of a lease is sent"
	DeleteDone Moment = "delete of a lease is done"

	Probed    Moment = "a probe is on the wire"
	Claimed   Moment = "a claim is on the wire"
	Announced Moment = "an address speaks on the wire"
)

// bystander waits for one moment at a time. Safe for concurrent use.
type bystander struct {
	mu    sync.Mutex
	watch *watch
}

// watch is the action at the n-th moment of a kind.
type watch struct {
	moment Moment
	nth    int
	act    func() error
	met    chan struct{}
}

// At runs act at the n-th such moment from now on. It replaces an earlier watch. A call between
// plugin, agent and API server waits until act has returned; an error of act closes the connection
// of that call. met is closed after act.
func (b *bystander) At(m Moment, nth int, act func() error) (met <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watch = &watch{m, nth, act, make(chan struct{})}
	return b.watch.met
}

// see reports that a moment has come, and runs act if it is the watched one.
func (b *bystander) see(m Moment) error {
	b.mu.Lock()
	w := b.watch
	if w == nil || w.moment != m {
		b.mu.Unlock()
		return nil
	}
	w.nth--
	if w.nth > 0 {
		b.mu.Unlock()
		return nil
	}
	b.watch = nil
	b.mu.Unlock()
	defer close(w.met)
	return w.act()
}

// socketDoor is the proxy through which the plugin calls the agent. If one side closes its connection,
// the other side is closed too.
type socketDoor struct {
	server *http.Server

	mu   sync.Mutex
	open map[net.Conn]bool // of plugins
}

// openSocketDoor starts the proxy on path, before the agent's own socket.
func openSocketDoor(path, agent string, see func(Moment) error) (*socketDoor, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for the plugin: %w", err)
	}
	called := map[string]Moment{agentapi.PathAdd: AddCalled, agentapi.PathDel: DelCalled}
	answered := map[string]Moment{agentapi.PathAdd: AddAnswered, agentapi.PathDel: DelAnswered}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", agent)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "agent"}) },
		Transport:      &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: dial},
		ModifyResponse: func(r *http.Response) error { return see(answered[r.Request.URL.Path]) },
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { closeConnection() },
		ErrorLog:       silent(),
	}
	d := &socketDoor{open: map[net.Conn]bool{}}
	d.server = newServer(func(w http.ResponseWriter, r *http.Request) {
		if see(called[r.URL.Path]) != nil {
			closeConnection()
		}
		proxy.ServeHTTP(w, r)
	})
	d.server.ConnState = d.track
	go func() { _ = d.server.Serve(l) }()
	return d, nil
}

// newServer returns a server of a proxy.
func newServer(handle http.HandlerFunc) *http.Server {
	return &http.Server{ErrorLog: silent(), ReadHeaderTimeout: time.Minute, Handler: handle}
}

// silent logs nothing: tests break connections.
func silent() *log.Logger { return log.New(io.Discard, "", 0) }

// closeConnection closes the connection of the present call without an answer.
func closeConnection() { panic(http.ErrAbortHandler) }

// track keeps the open connections.
func (d *socketDoor) track(c net.Conn, state http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch state {
	case http.StateNew:
		d.open[c] = true
	case http.StateClosed:
		delete(d.open, c)
	}
}

// closeAll closes every connection between the plugin and the agent.
func (d *socketDoor) closeAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.open {
		c.Close()
	}
}

// killPlugins kills every plugin that waits for an answer.
func (d *socketDoor) killPlugins() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for c := range d.open {
		pid, err := peer(c.(*net.UnixConn))
		if err == nil && pid != os.Getpid() { // not a call of the test itself
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("kill plugin %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// peer returns the process at the other end of a connection.
func peer(c *net.UnixConn) (pid int, err error) {
	defer must.Catch(&err)
	raw := must.Value(c.SyscallConn())
	var credentials *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		credentials, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	must.OK(errors.Join(err, failed))
	return int(credentials.Pid), nil
}

// leasesPath is the path of all leases in the API.
const leasesPath = "/apis/fenceline.io/v1alpha1/ipleases"

// errShut closes a connection while the API server is out of reach.
var errShut = errors.New("the API server is out of reach")

// apiDoor is the proxy through which a node reaches the API server.
type apiDoor struct {
	server *http.Server
	url    string
	shut   atomic.Bool
	silent atomic.Bool  // calls get no answer
	ahead  atomic.Int64 // by which the server's clock seems to be ahead
	slow   slowWrites
	see    func(Moment) error
}

// openAPIDoor starts the proxy in the node's namespace. All its calls have the rights of admin.
func openAPIDoor(ns *network.Namespace, admin *rest.Config, see func(Moment) error) (_ *apiDoor, err error) {
	defer must.Catch(&err)
	d := &apiDoor{see: see}
	var l net.Listener
	must.Done(ns.Do(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}), "listen for calls of the API server in %s", ns.Name)
	target, err := url.Parse(admin.Host)
	must.Done(err, "address of the API server")
	transport, err := rest.TransportFor(admin)
	must.Done(err, "connect to the API server")
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1, // watches
		ModifyResponse: d.answered,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
				w.WriteHeader(http.StatusServiceUnavailable) // as a load balancer without a server
				return
			}
			closeConnection()
		},
		ErrorLog: silent(),
	}
	d.url = "http://" + l.Addr().String()
	d.server = newServer(func(w http.ResponseWriter, r *http.Request) {
		for tick := time.NewTicker(10 * time.Millisecond); d.silent.Load() && r.Context().Err() == nil; <-tick.C {
			continue // as packets that are sent again until they get through
		}
		if d.shut.Load() || d.sent(r) != nil {
			closeConnection()
		}
		r, done, err := d.slow.hold(r)
		if err != nil {
			closeConnection()
		}
		defer done()
		proxy.ServeHTTP(w, r)
	})
	go func() { _ = d.server.Serve(l) }()
	return d, nil
}

// sent reports a call to see before the API server gets it.
func (d *apiDoor) sent(r *http.Request) error {
	switch method := ofLease(r); {
	case method == http.MethodGet && r.URL.Path != leasesPath:
		return d.see(GetSent)
	case method == http.MethodPost:
		return d.see(CreateSent)
	case method == http.MethodPut:
		return d.see(UpdateSent)
	case method == http.MethodDelete:
		return d.see(DeleteSent)
	}
	return nil
}

// answered reports a write to see after the API server has done it.
func (d *apiDoor) answered(r *http.Response) error {
	if d.shut.Load() {
		return errShut
	}
	if ahead := d.ahead.Load(); ahead != 0 {
		r.Header.Set("Date", time.Now().Add(time.Duration(ahead)).UTC().Format(http.TimeFormat))
	}
	if r.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	switch ofLease(r.Request) {
	case http.MethodPost:
		return d.see(CreateDone)
	case http.MethodPut:
		return d.see(UpdateDone)
	case http.MethodDelete:
		return d.see(DeleteDone)
	}
	return nil
}

// ofLease returns the method of a call about a lease, and "" for other calls.
func ofLease(r *http.Request) string {
	if !strings.HasPrefix(r.URL.Path, leasesPath) {
		return ""
	}
	return r.Method
}
