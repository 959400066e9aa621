// SPDX-License-Identifier: Apache-2.0

// Release makes the files of a version, and pushes it if it is told a registry. docs/release.md explains it.
//
//	release -version V [-registry HOST/PATH] [-key FILE] [-downloads URL] [-out DIR]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fenceline/fenceline/test/images"
	"github.com/fenceline/fenceline/test/release"
)

func main() {
	o := release.Options{Progress: os.Stdout}
	flag.StringVar(&o.Version, "version", images.DefaultVersion, "version, that of the chart and the changelog")
	flag.StringVar(&o.Registry, "registry", "", "HOST or HOST/PATH to push to")
	flag.StringVar(&o.Key, "key", "", "file of the private key that signs: ECDSA on P-256, in PEM")
	flag.StringVar(&o.Downloads, "downloads", "", "URL of the folder from which users get the files; empty: that of the project")
	flag.StringVar(&o.Out, "out", "dist", "directory for the files, which is emptied")
	flag.Parse()
	// The settings of this user change no byte of the programs.
	for name, value := range map[string]string{
		"GOFLAGS": "-trimpath -buildvcs=false", "GOAMD64": "v1", "GOARM64": "v8.0", "GOEXPERIMENT": "", "GOFIPS140": "off",
		"GOGC": "400", // compilers take a sixth less CPU
	} {
		os.Setenv(name, value)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := release.Make(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
