// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bytes"
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

// socketDoor is the proxy through which the plugin calls the agent.
type socketDoor struct {
	listener *net.UnixListener
	agent    string // the agent's own socket
	see      func(Moment) error

	mu   sync.Mutex
	open map[*passage]bool
}

// passage is one call of the plugin.
type passage struct {
	plugin, agent net.Conn
	pid           int // of the plugin
}

func openSocketDoor(path, agent string, see func(Moment) error) (*socketDoor, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for the plugin: %w", err)
	}
	d := &socketDoor{listener: l, agent: agent, see: see, open: map[*passage]bool{}}
	go d.serve()
	return d, nil
}

func (d *socketDoor) serve() {
	for {
		c, err := d.listener.AcceptUnix()
		if err != nil {
			return // closed
		}
		pid, err := peer(c)
		if err != nil {
			c.Close()
			continue
		}
		go d.pass(&passage{plugin: c, pid: pid})
	}
}

// pass carries one call and its answer. If one side closes, the other side is closed too.
func (d *socketDoor) pass(p *passage) {
	d.mu.Lock()
	d.open[p] = true
	d.mu.Unlock()
	defer d.close(p)
	request := make([]byte, 64<<10)
	n, err := p.plugin.Read(request)
	if err != nil {
		return
	}
	called, answered := momentsOf(request[:n])
	if d.see(called) != nil {
		return
	}
	agent, err := net.Dial("unix", d.agent)
	if err != nil {
		return
	}
	d.mu.Lock()
	p.agent = agent
	d.mu.Unlock()
	if _, err := agent.Write(request[:n]); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(agent, p.plugin)
		agent.Close()
	}()
	answer := make([]byte, 64<<10)
	n, err = agent.Read(answer)
	if err != nil || d.see(answered) != nil {
		return
	}
	if _, err := p.plugin.Write(answer[:n]); err == nil {
		_, _ = io.Copy(p.plugin, agent)
	}
}

// momentsOf returns the moments of a call, which its first line tells.
func momentsOf(request []byte) (called, answered Moment) {
	for path, moments := range map[string][2]Moment{
		agentapi.PathAdd: {AddCalled, AddAnswered}, agentapi.PathDel: {DelCalled, DelAnswered},
	} {
		if bytes.HasPrefix(request, []byte("POST "+path+" ")) {
			return moments[0], moments[1]
		}
	}
	return "", ""
}

// closeAll closes every connection between the plugin and the agent.
func (d *socketDoor) closeAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p := range d.open {
		p.plugin.Close()
		if p.agent != nil {
			p.agent.Close()
		}
	}
}

// killPlugins kills every plugin that waits for an answer.
func (d *socketDoor) killPlugins() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for p := range d.open {
		if p.pid == os.Getpid() {
			continue // a call of the test itself
		}
		if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("kill plugin %d: %w", p.pid, err))
		}
	}
	return errors.Join(errs...)
}

func (d *socketDoor) close(p *passage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, p)
	p.plugin.Close()
	if p.agent != nil {
		p.agent.Close()
	}
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
	ahead  atomic.Int64 // by which the server's clock seems to be ahead
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
	silent := log.New(io.Discard, "", 0)
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1, // watches
		ModifyResponse: func(r *http.Response) error { return d.answered(r) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
				w.WriteHeader(http.StatusServiceUnavailable) // as a load balancer without a server
				return
			}
			panic(http.ErrAbortHandler)
		},
		ErrorLog: silent,
	}
	d.url = "http://" + l.Addr().String()
	d.server = &http.Server{ErrorLog: silent, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.shut.Load() || d.sent(r) != nil {
			panic(http.ErrAbortHandler) // closes the connection without an answer
		}
		proxy.ServeHTTP(w, r)
	})}
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
