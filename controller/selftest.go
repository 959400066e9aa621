// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/selftest"
)

// testCommand is the first argument of a run for helm test. The last argument is the part: judge, serve or check. The
// environment variable podNameVariable names the pod of the last two.
const (
	testCommand     = "test"
	podNameVariable = "POD_NAME"
)

// testOptions holds the arguments after testCommand.
type testOptions struct {
	namespace, part string
	timeout         time.Duration
}

func parseTest(args []string) (testOptions, error) {
	var o testOptions
	flags := flag.NewFlagSet(name+" "+testCommand, flag.ContinueOnError)
	flags.StringVar(&o.namespace, "namespace", "fenceline-system", "`namespace` of Fenceline")
	flags.DurationVar(&o.timeout, "timeout", 0, "`time` for judge and check")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.part = flags.Arg(0)
	if flags.NArg() != 1 || o.part != "judge" && o.part != "serve" && o.part != "check" {
		return o, fmt.Errorf("test: unexpected arguments %q, want judge, serve or check", flags.Args())
	}
	return o, nil
}

func runTest(ctx context.Context, o testOptions, config *rest.Config) error {
	if o.part == "serve" {
		return selftest.Pod{Name: os.Getenv(podNameVariable)}.Serve(ctx)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("register the types: %w", err)
	}
	config = rest.CopyConfig(config)
	config.UserAgent = name
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	if o.part == "check" {
		return selftest.Pod{Client: api, Namespace: o.namespace, Name: os.Getenv(podNameVariable)}.Check(ctx)
	}
	return selftest.Judge{Client: api, Namespace: o.namespace, Out: os.Stdout}.Run(ctx)
}
