// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/uninstall"
)

// uninstallCommand is the first argument of a run that uninstalls Fenceline. The last argument is
// "begin" or "finish".
const uninstallCommand = "uninstall"

// uninstallOptions holds the arguments after uninstallCommand.
type uninstallOptions struct {
	namespace string
	finish    bool
}

func parseUninstall(args []string) (uninstallOptions, error) {
	var o uninstallOptions
	flags := flag.NewFlagSet(name+" "+uninstallCommand, flag.ContinueOnError)
	flags.StringVar(&o.namespace, "namespace", "fenceline-system", "`namespace` of Fenceline")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	step := flags.Arg(0)
	if flags.NArg() != 1 || step != "begin" && step != "finish" {
		return o, fmt.Errorf("uninstall: unexpected arguments %q, want begin or finish", flags.Args())
	}
	o.finish = step == "finish"
	return o, nil
}

func runUninstall(ctx context.Context, o uninstallOptions, config *rest.Config, log logr.Logger) error {
	scheme, err := cache.Scheme()
	if err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.UserAgent = name
	// A podview.Pod cannot be read from protobuf.
	config.ContentType = runtime.ContentTypeJSON
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	u := uninstall.Uninstall{Client: api, Namespace: o.namespace, Log: log}
	step := u.Begin
	if o.finish {
		step = u.Finish
	}
	if err := step(ctx); err != nil {
		return errors.Join(err, u.EndRights(ctx))
	}
	return nil
}
