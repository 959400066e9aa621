// The Fenceline controller reclaims addresses, ends retention, assigns
// verifiers and publishes the status of pools. It sends no frame.
//
// What it may do at the Kubernetes API. Cluster-wide:
//
//	apiGroups          resources             verbs
//	fenceline.io       ippools               get, list, watch, update
//	fenceline.io       ippools/status        update
//	fenceline.io       reservedips           get, list, watch
//	fenceline.io       reservedips/status    update
//	fenceline.io       ipleases              get, list, watch, update, delete
//	""                 pods                  get, list, watch, delete
//	""                 nodes                 get, list, watch
//	apps               statefulsets          get, list, watch
//	events.k8s.io      events                create, patch
//
// In its own namespace:
//
//	apiGroups            resources   verbs
//	""                   pods        patch
//	""                   secrets     create
//	coordination.k8s.io  leases      create
//	coordination.k8s.io  leases      get, update       (name fenceline-controller)
//	""                   events      create, patch     (leader election)
//
// pods delete serves rule R12; pods patch writes the agents' indexes. The claim
// key can be created but not read.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	logger := logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: o.logLevel}))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, logger); err != nil {
		logger.Error(err, "the controller ends")
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, logger logr.Logger) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	mgr, err := newManager(ctx, config, o, logger, clock.RealClock{})
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
