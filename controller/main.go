// SPDX-License-Identifier: Apache-2.0

// The Fenceline controller reclaims addresses, ends retention, assigns verifiers and publishes the
// status of pools. It sends no frame.
//
// Its rights at the Kubernetes API are in controller-rbac.yaml of the chart, each with its reason.
//
// "uninstall begin" and "uninstall finish" remove Fenceline, with the rights in uninstall.yaml. "test" is helm test, with
// the rights in test.yaml.
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
	if len(args) > 0 && args[0] == testCommand {
		o, err := parseTest(args[1:])
		return program{
			run: func(ctx context.Context, config *rest.Config, _ logr.Logger) error { return runTest(ctx, o, config) },
			// Helm, or an event of the pod, shows this text.
			fail: func(_ logr.Logger, err error) { fmt.Fprintln(os.Stderr, err) },
		}, err
	}
	o, err := parse(args)
	return program{
		run: func(ctx context.Context, config *rest.Config, logger logr.Logger) error {
			mgr, err := newManager(ctx, config, o, logger, clock.RealClock{})
			if err != nil {
				return err
			}
			return mgr.Start(ctx)
		},
		level: o.logLevel,
		fail:  func(logger logr.Logger, err error) { logger.Error(err, "the controller ends") },
	}, err
}
