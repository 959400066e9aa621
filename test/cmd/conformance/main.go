// SPDX-License-Identifier: Apache-2.0

// Conformance runs the [sig-network] conformance cases of Kubernetes on a cluster whose only network is Fenceline
// and macvlan, and prints a table with a row for every case. It exits with 1 unless every case passed.
//
//	conformance [-focus RE] [-skip RE] [-processes N] [-limit TIME] [-proxy MODE] [-set VALUE]... [-out DIR] [-keep]
//
// It starts a cluster and removes it. With -keep, the cluster stays: test/cmd/cluster -prefix flconf
// uses it and ends it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/conformance"
	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/thirdparty"
)

func main() {
	var o options
	flag.StringVar(&o.run.Focus, "focus", "", "regular expression over the names of cases")
	flag.StringVar(&o.run.Skip, "skip", "", "regular expression over the names of cases that do not run, and have no row")
	flag.IntVar(&o.run.Processes, "processes", 5, "how many cases run at the same time")
	flag.DurationVar(&o.run.Limit, "limit", time.Hour, "time limit of the cases")
	flag.StringVar(&o.out, "out", filepath.Join(".cache", "conformance"), "directory of table.md, report.json and log")
	flag.StringVar(&o.version, "version", images.DefaultVersion, "version of Fenceline's images")
	flag.StringVar(&o.proxy, "proxy", cluster.Nftables, "mode of kube-proxy, nftables or iptables")
	flag.Func("set", "a `value` of the chart, as helm's --set; may be repeated", func(value string) error {
		o.values = append(o.values, value)
		return nil
	})
	flag.BoolVar(&o.keep, "keep", false, "keep the cluster")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

type options struct {
	run          conformance.Run
	out, version string
	proxy        string
	values       []string
	keep         bool
}

func run(ctx context.Context, o options) (err error) {
	defer must.Catch(&err)
	o.out = must.Value(filepath.Abs(o.out))
	parts := must.Value(prepare(ctx, o.out))
	cases := must.Value(parts.suite.Cases(ctx, o.run))
	fmt.Fprintf(os.Stderr, "%d cases\n", len(cases))
	table, err := runOnCluster(ctx, o, parts, cases)
	if table == nil {
		return err
	}
	fmt.Print(table)
	must.OK(os.WriteFile(filepath.Join(o.out, "table.md"), []byte(table.String()), 0o644))
	must.OK(err)
	return table.Err()
}

func runOnCluster(ctx context.Context, o options, parts parts, cases []string) (table conformance.Table, err error) {
	defer must.Catch(&err)
	c := start(ctx, o.proxy, parts.images)
	if !o.keep {
		defer func() {
			if downErr := c.Down(context.WithoutCancel(ctx)); err == nil {
				err = downErr
			}
		}()
	}
	install(ctx, c, o.version, o.values)
	log := must.Value(os.Create(filepath.Join(o.out, "log")))
	defer log.Close()
	o.run.Kubeconfig, o.run.Kubectl = c.Kubeconfig(), filepath.Join(c.Tools()[0], "kubectl")
	o.run.Progress = io.MultiWriter(log, os.Stderr)
	outcomes, err := parts.suite.Run(ctx, o.run)
	return conformance.Account(cases, outcomes), err
}

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
