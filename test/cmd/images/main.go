// SPDX-License-Identifier: Apache-2.0

// Images builds the project's images into tarballs and prints their paths.
//
//	images [-version V] [-out DIR] [-arch ARCH] [-tests]
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
)

func main() {
	version := flag.String("version", images.DefaultVersion, "tag of the images")
	out := flag.String("out", "images", "directory for the tarballs")
	arch := flag.String("arch", runtime.GOARCH, "architecture of the nodes: amd64 or arm64")
	tests := flag.Bool("tests", false, "build the images of the tests instead")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	recipes := images.Product(*version)
	if *tests {
		recipes = images.ForTests()
	}
	if err := build(ctx, recipes, *arch, *out); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func build(ctx context.Context, recipes []images.Recipe, arch, out string) error {
	for _, r := range recipes {
		r.Arch = arch
		path, err := r.Build(ctx, out)
		if err != nil {
			return err
		}
		fmt.Printf("%s\t%s\n", path, r.Name)
	}
	return nil
}
