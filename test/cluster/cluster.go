// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/process"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// Cluster is a running cluster. Its methods are safe for concurrent use, except two that start or stop
// the same component.
type Cluster struct {
	// Options are the options of the cluster, with defaults filled in.
	Options Options

	dir          string
	state        state
	wires        *wires
	controlPlane *controlplane.ControlPlane
	nodes        []*Node
}

// Open returns the cluster with that prefix, which another process has started.
func Open(prefix string) (_ *Cluster, err error) {
	defer must.CatchIn(&err, "open cluster %s", prefix)
	c := load(prefix)
	c.wires = openWires(c.Options)
	c.attach()
	for i, n := range c.nodes {
		n.ns = c.wires.nodes[i]
	}
	return c, nil
}

// load reads the state file of a cluster.
func load(prefix string) *Cluster {
	c := &Cluster{dir: stateDir(prefix)}
	data, err := os.ReadFile(filepath.Join(c.dir, "cluster.json"))
	must.That(!errors.Is(err, fs.ErrNotExist), "%w", ErrNotUp)
	must.Done(err, "read the state of the cluster")
	must.Done(json.Unmarshal(data, &c.state), "read the state of the cluster in %s", c.dir)
	c.Options = c.state.Options
	return c
}

// Node returns the node with that number; the first is 1.
func (c *Cluster) Node(n int) *Node { return c.nodes[n-1] }

// Nodes returns all nodes in order.
func (c *Cluster) Nodes() []*Node { return slices.Clone(c.nodes) }

// NodeByName returns the node of that name.
func (c *Cluster) NodeByName(name string) (*Node, error) {
	for _, n := range c.nodes {
		if n.Name() == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("the cluster has no node %q", name)
}

// Import imports an image tarball on every node.
func (c *Cluster) Import(ctx context.Context, tarball string) error {
	return c.onEachNode(func(n *Node) error { return n.Import(ctx, tarball) })
}

// onEachNode calls do for all nodes at the same time.
func (c *Cluster) onEachNode(do func(*Node) error) error {
	var group errgroup.Group
	for _, n := range c.nodes {
		group.Go(func() error { return do(n) })
	}
	return group.Wait()
}

// thirdParty returns the directory of a component. It builds the component if it is missing.
func (c *Cluster) thirdParty(ctx context.Context, component string) string {
	progress := c.Options.Progress
	if progress == nil {
		progress = io.Discard // a cluster that another process has started
	}
	return must.Value(must.Value(thirdparty.NewBuilder(progress)).Dir(ctx, component))
}

// StopAPIServer ends kube-apiserver. All other components keep running.
func (c *Cluster) StopAPIServer(ctx context.Context) error { return c.controlPlane.StopAPIServer(ctx) }

// StartAPIServer starts kube-apiserver again and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	return c.controlPlane.StartAPIServer(ctx)
}

// APIServer returns the API server's host and port on the management network, which nodes reach without kube-proxy.
func (c *Cluster) APIServer() netip.AddrPort {
	return netip.AddrPortFrom(c.Options.address(controlPlaneHost), apiServerPort)
}

// APIServerService returns the API server's cluster IP.
func (c *Cluster) APIServerService() netip.Addr { return nth(c.Options.services()[0], 1) }

// LogDir returns the directory of the logs of the control plane ("") or of a node ("n1"). Down removes it.
func (c *Cluster) LogDir(owner string) string {
	if owner == "" {
		return filepath.Join(c.dir, "control-plane", "log")
	}
	return filepath.Join(c.dir, owner, "log")
}

const (
	apiServerPort  = 6443
	etcdClientPort = 2379
	etcdPeerPort   = 2380
)

func (c *Cluster) controlPlaneConfig() controlplane.Config {
	return controlplane.Config{
		Dir: filepath.Join(c.dir, "control-plane"),
		Command: func(ctx context.Context, path string, args ...string) *exec.Cmd {
			return c.wires.controlPlane.Command(ctx, path, args...)
		},
		EtcdDir: c.state.Binaries[thirdparty.Etcd], APIServerDir: c.state.Binaries[thirdparty.Kubernetes],
		KubernetesDir: c.state.Binaries[thirdparty.Kubernetes],
		Address:       c.Options.address(controlPlaneHost), Port: apiServerPort,
		EtcdClientPort: etcdClientPort, EtcdPeerPort: etcdPeerPort,
		Services: c.Options.services(), PodsAreRouted: len(c.Options.Gateways) > 0,
		NodeMonitorGrace: nodeMonitorGrace, Toleration: toleration,
	}
}

func (c *Cluster) nodeDir(n int) string   { return filepath.Join(c.dir, NodeName(n)) }
func (c *Cluster) machineProgram() string { return filepath.Join(c.dir, "machine") }
func (c *Cluster) binary(component, name string) string {
	return filepath.Join(c.state.Binaries[component], name)
}

// progress prints a step that has been completed.
func (c *Cluster) progress(format string, args ...any) {
	if c.Options.Progress == nil {
		return // a cluster that another process has started
	}
	fmt.Fprintf(c.Options.Progress, format+"\n", args...)
}

// state is the state file of a cluster, with which another process can use it and take it down.
type state struct {
	Options Options
	// Nodes are the first processes of the nodes.
	Nodes []process.Process
	// Binaries are the third-party directories by component.
	Binaries map[string]string
}

// ErrNotUp reports that there is no cluster with that prefix.
var ErrNotUp = errors.New("no such cluster is up")

// stateDir returns the directory of a cluster. Nodes have an /etc, /opt and
// /var of their own and could not see it there.
func stateDir(prefix string) string {
	cache := must.Value(thirdparty.CacheDir())
	for _, hidden := range []string{"/etc", "/opt", "/var", "/run"} {
		rel, err := filepath.Rel(hidden, cache)
		must.That(err != nil || !filepath.IsLocal(rel), "the cache directory %s is below %s, which nodes do not see; set FENCELINE_CACHE", cache, hidden)
	}
	return filepath.Join(cache, "clusters", prefix)
}

func (s state) save(dir string) {
	data := must.Value(json.MarshalIndent(s, "", "  "))
	must.Done(os.WriteFile(filepath.Join(dir, "cluster.json"), data, 0o644), "write the state of the cluster")
}
