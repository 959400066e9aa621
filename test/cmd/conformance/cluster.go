// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/conformance"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// prefix names the cluster of this command.
const prefix = "flconf"

// parts are what the cluster and the cases need and what is built before them.
type parts struct {
	suite  conformance.Suite
	images []string // tarballs
}

func prepare(ctx context.Context, out string) (p parts, err error) {
	builder, err := thirdparty.NewBuilder(os.Stderr)
	if err != nil {
		return p, err
	}
	e2e, err := builder.Dir(ctx, thirdparty.E2E)
	if err != nil {
		return p, err
	}
	userland, err := builder.Dir(ctx, thirdparty.Userland)
	if err != nil {
		return p, err
	}
	if p.suite, err = conformance.New(e2e, out); err != nil {
		return p, err
	}
	names, err := p.suite.Images(ctx)
	if err != nil {
		return p, err
	}
	p.images, err = p.suite.BuildImages(ctx, names, userland, filepath.Join(out, "images"))
	return p, err
}

func start(ctx context.Context, proxy string, images []string) (*cluster.Cluster, error) {
	options := cluster.Whole()
	options.Prefix, options.Management, options.Progress = prefix, netip.MustParsePrefix("172.30.4.0/24"), os.Stderr
	options.KubeProxy, options.Images = proxy, images
	return cluster.Up(ctx, options)
}

// install makes Fenceline and macvlan the only network of the cluster, with portmap for hostPort, and
// starts CoreDNS. The cases wait until CoreDNS is Ready.
func install(ctx context.Context, c *cluster.Cluster, version string, values []string) error {
	values = append([]string{"cni.conflist.portMap=true"}, values...)
	if err := c.InstallFenceline(ctx, version, values...); err != nil {
		return err
	}
	for i, gateway := range c.Options.Gateways {
		ips := "10.78.200.1-10.78.203.255"
		if gateway.Addr().Is6() {
			ips = "fd78::200:1-fd78::200:3ff"
		}
		if err := c.Apply(ctx, fmt.Sprintf(pool, i, gateway.Masked(), ips, gateway.Addr())); err != nil {
			return err
		}
	}
	if err := c.WaitReady(ctx); err != nil {
		return err
	}
	return c.InstallDNS(ctx)
}

const pool = `apiVersion: fenceline.io/v1alpha1
kind: IPPool
metadata: {name: everywhere-%d}
spec: {subnet: %q, ips: [%q], gateway: %q, default: true}
`
