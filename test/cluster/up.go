// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/machine"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/programs"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// Up starts a cluster. It returns when every node is registered; nodes are NotReady until the chart configures
// a network. It first removes the rest of an earlier cluster of the same prefix, and builds missing third-party
// binaries. After an error only the logs stay; the error names their directory.
func Up(ctx context.Context, o Options) (_ *Cluster, err error) {
	defer must.CatchIn(&err, "cluster up")
	o = must.Value(o.withDefaults())
	must.That(os.Geteuid() == 0, "root is needed for namespaces and mounts")
	must.OK(Down(ctx, o.Prefix))
	c := &Cluster{Options: o, dir: stateDir(o.Prefix), state: state{Options: o, Binaries: map[string]string{}}}
	started := time.Now()
	if err := must.Try(func() { c.up(ctx) }); err != nil {
		// The context may have ended; the started components must end all the same.
		return nil, fmt.Errorf("%w (logs are in %s)", errors.Join(err, c.stop(context.WithoutCancel(ctx))), c.dir)
	}
	c.progress("cluster %s is up after %s", o.Prefix, time.Since(started).Round(100*time.Millisecond))
	return c, nil
}

func (c *Cluster) up(ctx context.Context) {
	must.OK(os.MkdirAll(c.dir, 0o755))
	c.prepare(ctx)
	c.wires = must.Value(layWires(c.Options))
	c.state.save(c.dir)
	keys := must.Value(controlplane.WriteKeys(c.controlPlaneConfig()))
	c.controlPlane = must.Value(controlplane.Open(c.controlPlaneConfig()))
	c.progress("starting the control plane")
	must.OK(c.controlPlane.Start(ctx))
	c.progress("starting %d nodes", c.Options.Nodes)
	for n := 1; n <= c.Options.Nodes; n++ {
		c.startNode(n, keys)
	}
	must.OK(c.onEachNode(func(n *Node) error { return n.WaitBooted(ctx) }))
	c.progress("waiting for %d nodes", c.Options.Nodes)
	must.OK(c.waitUsable(ctx, false))
}

// runtime returns the component that is the container runtime of the nodes: the variable
// FENCELINE_TEST_RUNTIME chooses containerd, containerd-oldest or crio.
func runtime() string { return cmp.Or(os.Getenv("FENCELINE_TEST_RUNTIME"), thirdparty.Containerd) }

// prepare builds all binaries and images of the cluster.
func (c *Cluster) prepare(ctx context.Context) {
	if runtime() == thirdparty.CRIO {
		must.OK(thirdparty.InstallPackages(ctx, os.Stderr, "conmon", "skopeo"))
	}
	for _, name := range []string{thirdparty.Kubernetes, thirdparty.Etcd, runtime(), thirdparty.CNIPlugins, thirdparty.Helm} {
		c.state.Binaries[name] = c.thirdParty(ctx, name)
	}
	must.OK(programs.Build(ctx, "test/cmd/machine", c.machineProgram()))
	for _, recipe := range images.ForTests() {
		c.state.Options.Images = append(c.state.Options.Images, must.Value(recipe.Build(ctx, filepath.Join(c.dir, "images"))))
	}
}

func (c *Cluster) startNode(n int, keys *controlplane.Keys) {
	ns := c.wires.nodes[n-1]
	m := must.Value(machine.Start(c.nodeConfig(n, keys), ns, c.machineProgram()))
	c.nodes = append(c.nodes, &Node{Machine: m, cluster: c, number: n, ns: ns})
	c.state.Nodes = append(c.state.Nodes, m.Init)
	c.state.save(c.dir)
}

func (c *Cluster) nodeConfig(n int, keys *controlplane.Keys) machine.Config {
	name, addresses := NodeName(n), addrs(c.Options.nodeAddresses(n))
	kubelet := must.Value(keys.ClientKubeconfig(cert.Config{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}))
	serving := must.Value(keys.Issue(cert.Config{
		CommonName: "system:node:" + name, Organization: []string{"system:nodes"},
		AltNames: cert.AltNames{DNSNames: []string{name}, IPs: toIPs(addresses)},
	}))
	config := machine.Config{
		Name: name, Dir: c.nodeDir(n), Cgroup: c.Options.nodeName(n), Addresses: addresses,
		Path:       []string{c.state.Binaries[thirdparty.Kubernetes], c.state.Binaries[runtime()]},
		Runtime:    machine.Containerd,
		CNIPlugins: c.state.Binaries[thirdparty.CNIPlugins],
		PauseImage: images.PauseImage, Images: c.state.Options.Images,
		Kubelet: kubelet, Authority: keys.Authority(), ServingCert: serving.Cert, ServingKey: serving.Key,
		// kubelet renews after a quarter of this: twice the grace must pass in silence.
		LeaseDuration: nodeMonitorGrace,
		ProxyMode:     c.Options.KubeProxy, ClusterDNS: c.Options.nameServers(),
	}
	if runtime() == thirdparty.CRIO {
		config.Runtime = machine.CRIO
	}
	if c.Options.KubeProxy != "" {
		config.Proxy = must.Value(os.ReadFile(c.controlPlane.Config.Kubeconfig("proxy")))
	}
	return config
}

func toIPs(addresses []netip.Addr) []net.IP {
	var ips []net.IP
	for _, a := range addresses {
		ips = append(ips, a.AsSlice())
	}
	return ips
}

// Down ends the cluster with that prefix and removes its processes, namespaces, mounts, cgroups and
// files. It is no error if there is no such cluster.
func Down(ctx context.Context, prefix string) error {
	var c *Cluster
	if err := must.Try(func() { c = load(prefix); c.attach() }); errors.Is(err, ErrNotUp) {
		return nil
	} else if err != nil {
		return fmt.Errorf("cluster down: %w", err)
	}
	c.Options.Progress = io.Discard
	return c.Down(ctx)
}

// Down ends the cluster and removes its processes, namespaces, mounts, cgroups and files.
func (c *Cluster) Down(ctx context.Context) (err error) {
	defer must.CatchIn(&err, "cluster down")
	must.OK(c.stop(ctx))
	return os.RemoveAll(c.dir)
}

// attach finds the processes of a cluster that may be partly started or partly removed. Unlike Open,
// it does not need the namespaces of the cluster.
func (c *Cluster) attach() {
	c.controlPlane = must.Value(controlplane.Open(c.controlPlaneConfig()))
	for i, init := range c.state.Nodes {
		m := must.Value(machine.Open(c.nodeDir(i+1), init, c.machineProgram()))
		c.nodes = append(c.nodes, &Node{Machine: m, cluster: c, number: i + 1})
	}
}

// stop ends all processes of the cluster and removes its namespaces, mounts and cgroups. Files stay.
func (c *Cluster) stop(ctx context.Context) error {
	errs := []error{c.onEachNode(func(n *Node) error { return n.Machine.PowerOff(ctx) })}
	if c.controlPlane != nil {
		errs = append(errs, c.controlPlane.Stop(ctx))
	}
	if c.wires != nil {
		errs = append(errs, c.wires.sw.EndRecord())
	}
	errs = append(errs, cutWires(c.Options))
	return errors.Join(errs...)
}
