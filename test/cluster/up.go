// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/machine"
	"github.com/fenceline/fenceline/test/programs"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// Up starts a cluster. It returns when every node is registered, and Ready if there is a CNIConfig. It
// first removes the rest of an earlier cluster of the same prefix, and builds missing third-party
// binaries. After an error only the logs stay; the error names their directory.
func Up(ctx context.Context, o Options) (_ *Cluster, err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, fmt.Errorf("cluster up: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("cluster up: root is needed for namespaces and mounts")
	}
	if err := Down(ctx, o.Prefix); err != nil {
		return nil, fmt.Errorf("cluster up: %w", err)
	}
	dir, err := stateDir(o.Prefix)
	if err != nil {
		return nil, fmt.Errorf("cluster up: %w", err)
	}
	c := &Cluster{Options: o, dir: dir, state: state{Options: o, Binaries: map[string]string{}}}
	started := time.Now()
	if err := c.up(ctx); err != nil {
		// The context may have ended; the started components must end all the same.
		err = errors.Join(err, c.stop(context.WithoutCancel(ctx)))
		return nil, fmt.Errorf("cluster up: %w (logs are in %s)", err, c.dir)
	}
	c.progress("cluster %s is up after %s", o.Prefix, time.Since(started).Round(100*time.Millisecond))
	return c, nil
}

func (c *Cluster) up(ctx context.Context) error {
	if err := makeDir(c.dir); err != nil {
		return err
	}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	var err error
	if c.wires, err = layWires(c.Options); err != nil {
		return err
	}
	if err := c.state.save(c.dir); err != nil {
		return err
	}
	keys, err := controlplane.WriteKeys(c.controlPlaneConfig())
	if err != nil {
		return err
	}
	if c.controlPlane, err = controlplane.Open(c.controlPlaneConfig()); err != nil {
		return err
	}
	c.progress("starting the control plane")
	if err := c.controlPlane.Start(ctx); err != nil {
		return err
	}
	c.progress("starting %d nodes", c.Options.Nodes)
	for n := 1; n <= c.Options.Nodes; n++ {
		if err := c.startNode(n, keys); err != nil {
			return err
		}
	}
	if err := c.onEachNode(func(n *Node) error { return n.WaitBooted(ctx) }); err != nil {
		return err
	}
	c.progress("waiting for %d nodes", c.Options.Nodes)
	return c.waitUsable(ctx, c.Options.CNIConfig != nil)
}

// runtime returns the component that is the container runtime of the nodes: the variable
// FENCELINE_TEST_RUNTIME chooses containerd, containerd-oldest or crio.
func runtime() string { return cmp.Or(os.Getenv("FENCELINE_TEST_RUNTIME"), thirdparty.Containerd) }

// prepare builds all binaries and images of the cluster.
func (c *Cluster) prepare(ctx context.Context) error {
	var err error
	if runtime() == thirdparty.CRIO {
		if err := thirdparty.InstallPackages(ctx, os.Stderr, "conmon", "skopeo"); err != nil {
			return err
		}
	}
	for _, name := range []string{thirdparty.Kubernetes, thirdparty.Etcd, runtime(), thirdparty.CNIPlugins, thirdparty.Helm} {
		if c.state.Binaries[name], err = c.thirdParty(ctx, name); err != nil {
			return err
		}
	}
	if err := programs.Build(ctx, "test/cmd/machine", c.machineProgram()); err != nil {
		return err
	}
	for _, recipe := range images.ForTests() {
		tarball, err := recipe.Build(ctx, filepath.Join(c.dir, "images"))
		if err != nil {
			return err
		}
		c.state.Options.Images = append(c.state.Options.Images, tarball)
	}
	return nil
}

func (c *Cluster) startNode(n int, keys *controlplane.Keys) error {
	config, err := c.nodeConfig(n, keys)
	if err != nil {
		return err
	}
	ns := c.wires.nodes[n-1]
	m, err := machine.Start(config, ns, c.machineProgram())
	if err != nil {
		return err
	}
	c.nodes = append(c.nodes, &Node{Machine: m, cluster: c, number: n, ns: ns})
	c.state.Nodes = append(c.state.Nodes, m.Init)
	return c.state.save(c.dir)
}

func (c *Cluster) nodeConfig(n int, keys *controlplane.Keys) (machine.Config, error) {
	name, addresses := NodeName(n), addrs(c.Options.nodeAddresses(n))
	kubelet, err := keys.ClientKubeconfig(cert.Config{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}})
	if err != nil {
		return machine.Config{}, err
	}
	serving, err := keys.Issue(cert.Config{
		CommonName: "system:node:" + name, Organization: []string{"system:nodes"},
		AltNames: cert.AltNames{DNSNames: []string{name}, IPs: toIPs(addresses)},
	})
	if err != nil {
		return machine.Config{}, err
	}
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
	if c.Options.CNIConfig != nil {
		config.CNIConfig = c.Options.CNIConfig(n)
	}
	if c.Options.KubeProxy != "" {
		if config.Proxy, err = os.ReadFile(c.controlPlane.Config.Kubeconfig("proxy")); err != nil {
			return machine.Config{}, fmt.Errorf("read kube-proxy's kubeconfig: %w", err)
		}
	}
	return config, nil
}

func toIPs(addresses []netip.Addr) []net.IP {
	var ips []net.IP
	for _, a := range addresses {
		ips = append(ips, a.AsSlice())
	}
	return ips
}
