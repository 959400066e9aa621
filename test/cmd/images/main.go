// SPDX-License-Identifier: Apache-2.0

// Images builds the project's images into tarballs and prints their paths.
//
//	images [-version V] [-out DIR] [-arch ARCH]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/must"
)

func main() {
	version := flag.String("version", images.DefaultVersion, "tag of the images")
	out := flag.String("out", "images", "directory for the tarballs")
	arch := flag.String("arch", runtime.GOARCH, "architecture of the nodes: amd64 or arm64")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := build(ctx, images.Product(*version), *arch, *out); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func build(ctx context.Context, recipes []images.Recipe, arch, out string) (err error) {
	defer must.Catch(&err)
	for _, r := range recipes {
		if arch != runtime.GOARCH {
			r.Target.Arch = arch
		}
		fmt.Printf("%s\t%s\n", must.Value(r.Build(ctx, out)), r.Name)
	}
	return nil
}
