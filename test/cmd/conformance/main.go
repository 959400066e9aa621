// SPDX-License-Identifier: Apache-2.0

// Conformance runs the [sig-network] conformance cases of Kubernetes on a cluster whose only network is
// Fenceline and macvlan, and prints a table with a row for every case. It exits with 1 unless every
// case passed.
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
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/conformance"
	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/must"
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
