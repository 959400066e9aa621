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
	"github.com/fenceline/fenceline/test/must"
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
	defer must.Catch(&err)
	builder := must.Value(thirdparty.NewBuilder(os.Stderr))
	e2e := must.Value(builder.Dir(ctx, thirdparty.E2E))
	userland := must.Value(builder.Dir(ctx, thirdparty.Userland))
	p.suite = must.Value(conformance.New(e2e, out))
	names := must.Value(p.suite.Images(ctx))
	p.images, err = p.suite.BuildImages(ctx, names, userland, filepath.Join(out, "images"))
	return p, err
}

func start(ctx context.Context, proxy string, images []string) *cluster.Cluster {
	options := cluster.Whole()
	options.Prefix, options.Management, options.Progress = prefix, netip.MustParsePrefix("172.30.4.0/24"), os.Stderr
	options.KubeProxy, options.Images = proxy, images
	return must.Value(cluster.Up(ctx, options))
}

// install makes Fenceline and macvlan the only network of the cluster, with portmap for hostPort, and
// starts CoreDNS. The cases wait until CoreDNS is Ready.
func install(ctx context.Context, c *cluster.Cluster, version string, values []string) {
	values = append([]string{"cni.conflist.portMap=true"}, values...)
	must.OK(c.InstallFenceline(ctx, version, values...))
	for i, gateway := range c.Options.Gateways {
		ips := "10.78.200.1-10.78.203.255"
		if gateway.Addr().Is6() {
			ips = "fd78::200:1-fd78::200:3ff"
		}
		must.OK(c.Apply(ctx, fmt.Sprintf(pool, i, gateway.Masked(), ips, gateway.Addr())))
	}
	must.OK(c.WaitReady(ctx))
	must.OK(c.InstallDNS(ctx))
}

const pool = `apiVersion: fenceline.io/v1alpha1
kind: IPPool
metadata: {name: everywhere-%d}
spec: {subnet: %q, ips: [%q], gateway: %q, default: true}
`
