// SPDX-License-Identifier: Apache-2.0

// Package programs builds main packages of this project as they are shipped.
package programs

import (
	"cmp"
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

// Target says for which machines programs are, and of which release. The zero value is this machine without a
// release.
type Target struct{ OS, Arch, Version, Commit string }

// Build builds a main package for this machine, named by its directory in the project such as "test/cmd/app", to
// a file.
func Build(ctx context.Context, pkg, file string) error { return Target{}.Build(ctx, pkg, file) }

// Build builds a main package to a file. The zero target takes a program from Dir, and leaves it there for the
// next one. A program that any process has linked from the same source is there already: go run keeps these, and
// go build links anew.
func (t Target) Build(ctx context.Context, pkg, file string) error {
	shared := filepath.Join(Dir(), name(pkg))
	isShared := t == (Target{}) && Dir() != ""
	if isShared && os.Link(shared, file) == nil {
		return nil
	}
	root, err := thirdparty.Root()
	if err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	flags := "-s -w"
	if t.Version != "" {
		const variable = " -X github.com/fenceline/fenceline/internal/version."
		flags += " -buildid=" + variable + "release=" + t.Version + variable + "commit=" + t.Commit
	}
	cmd := exec.CommandContext(ctx, "go", "run", "-trimpath", "-ldflags="+flags, "-exec=cp", "./"+pkg, file)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+cmp.Or(t.OS, runtime.GOOS), "GOARCH="+cmp.Or(t.Arch, runtime.GOARCH))
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, output)
	}
	if isShared {
		_ = os.Link(file, shared) // on another file system, each caller builds it
	}
	return nil
}

// Share builds programs to a directory, from which Build takes them in this process and those that it starts. It
// becomes Dir.
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
