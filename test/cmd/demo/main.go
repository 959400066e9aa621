// SPDX-License-Identifier: Apache-2.0

// Demo shows on a real cluster what Fenceline promises, and closes with "N passed, N failed".
//
//	demo [-version V] [NAME...]    start a cluster, install Fenceline, play scenarios, remove the cluster
//	demo -on PREFIX [NAME...]      play scenarios on a cluster that is up
//
// Without names it plays the scenarios that fit into a few minutes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/must"
)

func main() {
	version := flag.String("version", images.DefaultVersion, "version of the images and the chart")
	on := flag.String("on", "", "prefix of a cluster that is up, with Fenceline installed")
	flag.Parse()
	log.SetLogger(logr.Discard()) // the clients of the scenarios have nothing to tell a viewer
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, *version, *on, flag.Args())
	if errors.Is(err, errFailed) {
		os.Exit(1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(2)
	}
}

func run(ctx context.Context, version, on string, names []string) (err error) {
	defer must.Catch(&err)
	chosen := choose(names)
	s := newShow(os.Stdout)
	if on != "" {
		return s.playOn(ctx, on, chosen)
	}
	return s.playFromNothing(ctx, version, chosen)
}
