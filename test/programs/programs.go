// SPDX-License-Identifier: Apache-2.0

// Package programs builds main packages of this project as they are shipped.
package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/fenceline/fenceline/test/thirdparty"
)

// variable names a directory of programs that this process, or one above it, has built.
const variable = "FENCELINE_TEST_PROGRAMS"

// Build builds a main package, named by its directory in the project such as "test/cmd/app", to a file.
// It takes a program that Share has built, and otherwise one that any process has linked from the same
// source: go run keeps these, and go build links anew.
func Build(ctx context.Context, pkg, file string) error {
	if dir := Dir(); dir != "" && os.Link(filepath.Join(dir, name(pkg)), file) == nil {
		return nil
	}
	return BuildFor(ctx, runtime.GOARCH, pkg, file)
}

// BuildFor is Build for machines of an architecture, such as arm64. It takes no program of Share.
func BuildFor(ctx context.Context, arch, pkg, file string) error {
	root, err := thirdparty.Root()
	if err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	cmd := exec.CommandContext(ctx, "go", "run", "-trimpath", "-ldflags=-s -w", "-exec=cp", "./"+pkg, file)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, output)
	}
	return nil
}

// Share builds programs to a directory, from which Build takes them in this process and those that it starts.
func Share(ctx context.Context, dir string, pkgs ...string) error {
	for _, pkg := range pkgs {
		if err := Build(ctx, pkg, filepath.Join(dir, name(pkg))); err != nil {
			return err
		}
	}
	return os.Setenv(variable, dir)
}

// Dir returns the directory of programs that this process, or one above it, has built, or the empty string.
func Dir() string { return os.Getenv(variable) }

func name(pkg string) string { return strings.ReplaceAll(pkg, "/", "-") }
