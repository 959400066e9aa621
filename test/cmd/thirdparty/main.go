// SPDX-License-Identifier: Apache-2.0

// Thirdparty installs Debian packages and builds third-party binaries for the tests.
//
//	thirdparty packages NAME...   install missing Debian packages, and those named (root)
//	thirdparty build NAME...   build components and print nothing but progress
//	thirdparty dir NAME        build the component and print its directory
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/thirdparty"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "thirdparty:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	defer must.Catch(&err)
	must.That(len(args) != 0, "usage: thirdparty packages NAME... | build NAME... | dir NAME")
	switch verb, names := args[0], args[1:]; verb {
	case "packages":
		return thirdparty.InstallPackages(ctx, os.Stderr, names...)
	case "build", "dir":
		build(ctx, names, verb == "dir")
		return nil
	default:
		return fmt.Errorf("no verb %q", verb)
	}
}

func build(ctx context.Context, names []string, printDir bool) {
	b := must.Value(thirdparty.NewBuilder(os.Stderr))
	for _, name := range names {
		dir := must.Value(b.Dir(ctx, name))
		if printDir {
			fmt.Println(dir)
		}
	}
}
