// SPDX-License-Identifier: Apache-2.0

// The Fenceline controller reclaims addresses, ends retention, assigns verifiers and publishes the
// status of pools. It sends no frame.
//
// It has these rights at the Kubernetes API. Cluster-wide:
//
//	apiGroups          resources             verbs
//	fenceline.io       ippools               get, list, watch, create, update, delete
//	fenceline.io       ipsubnets             get, list, watch
//	fenceline.io       ipsubnets/status      update
//	fenceline.io       ippools/status        update
//	fenceline.io       reservedips           get, list, watch
//	fenceline.io       reservedips/status    update
//	fenceline.io       ipleases              get, list, watch, update, delete
//	""                 pods                  get, list, watch, delete
//	""                 nodes                 get, list, watch
//	apps.kruise.io     statefulsets          get
//	kubevirt.io        virtualmachines       get        (and virtualmachineinstances)
//	apps               deployments, statefulsets, daemonsets   get, list, watch
//	apps               replicasets           get
//	batch              jobs, cronjobs        get, list, watch
//	""                 namespaces            get, list, watch
//	*                  */scale               get
//	discovery.k8s.io   endpointslices        list
//	events.k8s.io      events                create, patch
//
// With --metrics-secure or --ui-address also:
//
//	authentication.k8s.io  tokenreviews          create
//	authorization.k8s.io   subjectaccessreviews  create
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
// Rule R12 needs pods delete and endpointslices list. pods patch writes the agents' indexes. The
// controller can create the claim key but not read it.
//
// With the arguments "uninstall begin" or "uninstall finish" it removes Fenceline from the cluster.
// While the chart is being uninstalled, it also has these rights in its own namespace:
//
//	apiGroups   resources     verbs
//	apps        deployments   delete   (name fenceline-controller)
//	apps        daemonsets    delete   (name fenceline-agent)
//	apps        daemonsets    get      (name fenceline-remove)
//	""          namespaces    get, patch   (its own)
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fenceline/fenceline/internal/version"
)

func main() {
	if slices.Equal(os.Args[1:], []string{"--version"}) {
		fmt.Println("fenceline-controller version", version.String())
		return
	}
	p, err := command(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	logger := logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: p.level}))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	config, err := ctrl.GetConfig()
	if err != nil {
		err = fmt.Errorf("read the kubeconfig of the cluster: %w", err)
	} else {
		err = p.run(ctx, config, logger)
	}
	if err != nil {
		p.fail(logger, err)
		stop()
		os.Exit(1)
	}
}

// program is the action of a command line.
type program struct {
	run   func(context.Context, *rest.Config, logr.Logger) error
	level slog.Level
	// fail reports why the run failed.
	fail func(logr.Logger, error)
}

// command parses the arguments, without the program's name.
func command(args []string) (program, error) {
	if len(args) > 0 && args[0] == uninstallCommand {
		o, err := parseUninstall(args[1:])
		return program{
			run: func(ctx context.Context, config *rest.Config, logger logr.Logger) error {
				return runUninstall(ctx, o, config, logger)
			},
			// Helm shows this text to the operator.
			fail: func(_ logr.Logger, err error) { fmt.Fprintln(os.Stderr, err) },
		}, err
	}
	o, err := parse(args)
	return program{
		run: func(ctx context.Context, config *rest.Config, logger logr.Logger) error {
			return run(ctx, o, config, logger)
		},
		level: o.logLevel,
		fail:  func(logger logr.Logger, err error) { logger.Error(err, "the controller ends") },
	}, err
}

func run(ctx context.Context, o options, config *rest.Config, logger logr.Logger) error {
	mgr, err := newManager(ctx, config, o, logger, clock.RealClock{})
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
