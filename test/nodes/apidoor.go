// SPDX-License-Identifier: Apache-2.0

package nodes

import (
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
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/network"
)

// leasesPath is the path of all leases in the API.
const leasesPath = "/apis/fenceline.io/v1alpha1/ipleases"

// errShut closes a connection while the API server is out of reach.
var errShut = errors.New("the API server is out of reach")

// apiDoor is the proxy through which a node reaches the API server.
type apiDoor struct {
	server *http.Server
	url    string
	shut   atomic.Bool
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

// writeKubeconfig writes a kubeconfig that leads to the proxy.
func (d *apiDoor) writeKubeconfig(path string) error {
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": {Server: d.url}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test"}},
		CurrentContext: "test",
	}
	data, err := clientcmd.Write(config)
	if err != nil {
		return fmt.Errorf("encode a kubeconfig: %w", err)
	}
	return os.WriteFile(path, data, 0o600)
}
