// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path"
	"time"

	"github.com/fenceline/fenceline/test/must"
)

// registryPort is that of a registry on this machine, on the management network.
const registryPort = 5000

// ServeRegistry serves a registry on the management network, and returns its HOST:PORT. No node trusts it yet. The
// caller calls stop.
func (c *Cluster) ServeRegistry(handler http.Handler) (host string, stop func() error, err error) {
	defer must.CatchIn(&err, "serve a registry")
	host = net.JoinHostPort(c.Options.address(machineHost).String(), fmt.Sprint(registryPort))
	listener := must.Value(net.Listen("tcp", host))
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // ends with stop
	return host, server.Close, nil
}

// registryTrust is what containerd 2 reads about registries at each pull.
const registryTrust = "/etc/containerd/certs.d"

// TrustRegistry lets the nodes pull from a registry without TLS.
func (c *Cluster) TrustRegistry(ctx context.Context, host string) error {
	config := fmt.Appendf(nil, "server = \"http://%s\"\n", host)
	return c.onEachNode(func(n *Node) error { return n.write(ctx, path.Join(registryTrust, host, "hosts.toml"), config) })
}

// DistrustRegistries undoes TrustRegistry.
func (c *Cluster) DistrustRegistries(ctx context.Context) error {
	return c.onEachNode(func(n *Node) error {
		_, err := n.Exec(ctx, "rm", "-rf", registryTrust)
		return err
	})
}
