// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	_ "embed" // the manifest
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/programs"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// FencelineNamespace is the namespace that Fenceline is installed in.
const FencelineNamespace = "fenceline-system"

// InstallFenceline builds Fenceline's images and `kubectl fenceline`, imports the images on every node, and
// installs or upgrades the chart as its README says. Values are arguments of helm's --set.
func (c *Cluster) InstallFenceline(ctx context.Context, version string, values ...string) (err error) {
	defer must.Catch(&err)
	for _, recipe := range images.Product(version) {
		c.progress("building %s", recipe.Name)
		tarball := must.Value(recipe.Build(ctx, filepath.Join(c.dir, "images")))
		must.OK(c.Import(ctx, tarball))
	}
	c.progress("building kubectl fenceline")
	must.OK(os.MkdirAll(c.commandDir(), 0o755))
	must.OK(programs.Build(ctx, "cli", filepath.Join(c.commandDir(), "kubectl-fenceline")))
	return c.InstallChart(ctx, version, values...)
}

// RetagFenceline upgrades Fenceline to another version of the same images, in seconds: it builds
// nothing. The images of images.DefaultVersion must be on the nodes.
func (c *Cluster) RetagFenceline(ctx context.Context, version string, values ...string) (err error) {
	defer must.Catch(&err)
	retagged := images.Product(version)
	for i, recipe := range images.Product(images.DefaultVersion) {
		must.OK(c.onEachNode(func(n *Node) error { return n.Tag(ctx, recipe.Name, retagged[i].Name) }))
	}
	return c.InstallChart(ctx, version, values...)
}

// InstallChart installs or upgrades the chart. The images of that version must be on the nodes.
func (c *Cluster) InstallChart(ctx context.Context, version string, values ...string) (err error) {
	defer must.Catch(&err)
	c.progress("installing the chart")
	args := []string{
		"upgrade", "--install", "fenceline", filepath.Join(must.Value(thirdparty.Root()), "charts", "fenceline"),
		"--namespace", FencelineNamespace, "--create-namespace", "--wait", "--timeout", "3m",
	}
	if version != images.DefaultVersion {
		values = append(values, "image.tag="+version)
	}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	if c.Options.Bridged {
		args = append(args, "--set-literal", fmt.Sprintf(`cni.conflist.content={"name":"underlay","plugins":[{"type":"bridge","bridge":%q,"ipam":{"type":"fenceline"}},{"type":"fenceline"}]}`, podBridge))
	}
	_, err = c.Helm(ctx, args...)
	return err
}

//go:embed dns.yaml
var dnsManifest string

// dnsHost is the number of CoreDNS' cluster IP in each range of services, as kubeadm chooses it.
const dnsHost = 10

// InstallDNS installs CoreDNS in kube-system, built from its module. Its pods are Ready once they have
// addresses, their nodes' probes reach them, and they reach the API server.
func (c *Cluster) InstallDNS(ctx context.Context) (err error) {
	defer must.CatchIn(&err, "install CoreDNS")
	tarball := must.Value(images.DNS(c.thirdParty(ctx, thirdparty.CoreDNS)).Build(ctx, filepath.Join(c.dir, "images")))
	return errors.Join(c.Import(ctx, tarball), c.Apply(ctx, c.dnsObjects()))
}

// RemoveDNS undoes InstallDNS, and returns when the pods are gone. The image stays on the nodes.
func (c *Cluster) RemoveDNS(ctx context.Context) (err error) {
	defer must.CatchIn(&err, "remove CoreDNS")
	must.OK(c.kubectlWith(ctx, c.dnsObjects(), "delete", "--filename=-", "--ignore-not-found"))
	_, err = c.Kubectl(ctx, "wait", "pods", "--namespace=kube-system", "--selector=k8s-app=kube-dns", "--for=delete", "--timeout=60s")
	return err
}

// NameServers returns the cluster IPs of CoreDNS, one of each family of the cluster.
func (c *Cluster) NameServers() []netip.Addr { return c.Options.nameServers() }

func (c *Cluster) dnsObjects() string {
	servers := must.Value(json.Marshal(c.NameServers()))
	return fmt.Sprintf(dnsManifest, images.DNSImage, c.NameServers()[0].String(), servers)
}

// Furnish gives a cluster with Fenceline all that docs/start.md requires: CoreDNS, whose pods wait
// for a pool, and the image of the examples.
func (c *Cluster) Furnish(ctx context.Context) (err error) {
	defer must.Catch(&err)
	tarball := must.Value(images.SaveBusybox(ctx, filepath.Join(c.dir, "images")))
	return errors.Join(c.Import(ctx, tarball), c.InstallDNS(ctx))
}

// Shell runs a command line of docs/start.md in the project's directory, with Tools, and returns what it printed.
func (c *Cluster) Shell(ctx context.Context, line string) (_ string, err error) {
	defer must.Catch(&err)
	cmd := c.command(ctx, "bash", "-c", line)
	cmd.Dir = must.Value(thirdparty.Root())
	return output(cmd)
}

// FirstSteps returns commands of docs/start.md. They make a pool, pods and a Service, and ask the Service.
func FirstSteps() []string {
	return []string{
		"kubectl apply --filename examples/pool.yaml",
		"kubectl wait deployment --all --all-namespaces --for=condition=Available --timeout=2m",
		"kubectl exec deployment/web -- wget -q -O - http://web/hostname",
		"kubectl fenceline map underlay",
	}
}

// Guide prints what the cluster has, and what a person can try.
func (c *Cluster) Guide(w io.Writer) error {
	_, outside, err := c.Outside()
	if err != nil {
		return err
	}
	for _, n := range c.nodes {
		fmt.Fprintf(w, "node %s        %v\n", n.Name(), addrs(c.Options.nodeAddresses(n.number)))
	}
	fmt.Fprintf(w, `outside host   %v, behind the router: go run ./test/cmd/cluster exec outside COMMAND
router         %v
images         %s, %s; the nodes reach no registry
`, outside, slices.Concat(c.Options.Gateways, c.Options.MoreGateways), images.BusyboxImage, images.AppImage)
	return nil
}
