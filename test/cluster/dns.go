// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	_ "embed" // the manifest
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/test/images"
)

//go:embed dns.yaml
var dnsManifest string

// dnsHost is the number of CoreDNS' cluster IP in each range of services, as kubeadm chooses it.
const dnsHost = 10

// InstallDNS installs CoreDNS in kube-system. Its pods are Ready once they have addresses, their
// node's probes reach them, and they reach the API server.
func (c *Cluster) InstallDNS(ctx context.Context) error {
	manifest, err := c.dnsObjects()
	if err != nil {
		return fmt.Errorf("install CoreDNS: %w", err)
	}
	return c.Apply(ctx, manifest)
}

// RemoveDNS undoes InstallDNS, and returns when the pods are gone.
func (c *Cluster) RemoveDNS(ctx context.Context) error {
	manifest, err := c.dnsObjects()
	if err != nil {
		return fmt.Errorf("remove CoreDNS: %w", err)
	}
	err = c.kubectlWith(ctx, manifest, "delete", "--filename=-", "--ignore-not-found")
	_, gone := c.Kubectl(ctx, "wait", "pods", "--namespace=kube-system", "--selector=k8s-app=kube-dns", "--for=delete", "--timeout=60s")
	return errors.Join(err, gone)
}

func (c *Cluster) dnsObjects() (string, error) {
	servers := c.Options.nameServers()
	if len(servers) == 0 {
		return "", errors.New("the option DNS is off, so no node has its image")
	}
	all, err := json.Marshal(servers)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(dnsManifest, images.DNSImage, servers[0].String(), all), nil
}
