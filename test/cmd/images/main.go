// SPDX-License-Identifier: Apache-2.0

// Images builds the project's images into tarballs and prints their paths.
//
//	images [-version V] [-out DIR] [-tests]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fenceline/fenceline/test/images"
)

func main() {
	version := flag.String("version", images.DefaultVersion, "tag of the images")
	out := flag.String("out", "images", "directory for the tarballs")
	tests := flag.Bool("tests", false, "build the images of the tests instead")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	recipes := images.Product(*version)
	if *tests {
		recipes = images.ForTests()
	}
	if err := build(ctx, recipes, *out); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func build(ctx context.Context, recipes []images.Recipe, out string) error {
	for _, r := range recipes {
		path, err := r.Build(ctx, out)
		if err != nil {
			return err
		}
		fmt.Printf("%s\t%s\n", path, r.Name)
	}
	return nil
}
