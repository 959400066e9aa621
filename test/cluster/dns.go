// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	_ "embed" // the manifest
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/thirdparty"
)

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
