// SPDX-License-Identifier: Apache-2.0

package thirdparty

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fenceline/fenceline/test/interrupted"
)

// builtMark is the file that a finished build writes beside its binaries. It holds the digest of all
// inputs.
const builtMark = ".built"

// Builder builds components into the cache.
type Builder struct {
	// Modules is the directory of the tool modules.
	Modules string
	// Cache receives one directory for each component and version.
	Cache string
	// Progress receives a line when a build starts and one when it ends.
	Progress io.Writer
}

// NewBuilder returns a builder for the project that contains the working directory.
func NewBuilder(progress io.Writer) (*Builder, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	return &Builder{Modules: filepath.Join(root, "test", "thirdparty", "modules"), Cache: cache, Progress: progress}, nil
}

// Dir returns the directory of the component's files. It first builds or fetches them if they are
// missing. Processes that need the same component at the same time wait for each other.
func (b *Builder) Dir(ctx context.Context, name string) (string, error) {
	if u, ok := findUnpacked(name); ok {
		return b.unpackedDir(ctx, u)
	}
	c, err := find(name)
	if err != nil {
		return "", err
	}
	plan, err := b.plan(c)
	if err != nil {
		return "", fmt.Errorf("plan the build of %s: %w", name, err)
	}
	if plan.done() {
		return plan.dir, nil
	}
	unlock, err := lock(filepath.Join(b.Cache, name+".lock"))
	if err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}
	defer unlock()
	if plan.done() { // by the process that held the lock
		return plan.dir, nil
	}
	started := time.Now()
	fmt.Fprintf(b.Progress, "building %s %s\n", name, plan.version)
	if err := plan.run(ctx); err != nil {
		return "", fmt.Errorf("build %s %s: %w", name, plan.version, err)
	}
	fmt.Fprintf(b.Progress, "building %s %s: done in %s\n", name, plan.version, time.Since(started).Round(time.Second))
	return plan.dir, nil
}

// buildPlan is one component at one version for one toolchain.
type buildPlan struct {
	version string
	source  string // the tool module
	dir     string // where the binaries end up
	digest  string // of everything that decides the result
	target  string // argument of go build
	binary  string // name of the only binary; "" for all tools
	tests   string // argument of go test; "" for none
	ldflags string
	tags    string
	// c is the folder of a program in C below the directory of the module.
	c, module string
}

func (b *Builder) plan(c Component) (buildPlan, error) {
	p := buildPlan{source: filepath.Join(b.Modules, c.Name), target: "tool", binary: c.Binary, tests: c.TestPackage, tags: c.tags, c: c.CProgram, module: c.Module}
	gomod, err := os.ReadFile(filepath.Join(p.source, "go.mod"))
	if err != nil {
		return p, err
	}
	gosum, err := os.ReadFile(filepath.Join(p.source, "go.sum"))
	if err != nil {
		return p, err
	}
	if p.version, err = requiredVersion(string(gomod), c.Module); err != nil {
		return p, err
	}
	if c.Package != "" {
		p.target = c.Package
	}
	p.ldflags = "-s -w"
	if c.linkFlags != nil {
		p.ldflags += " " + c.linkFlags(p.version)
	}
	p.dir = filepath.Join(b.Cache, c.Name+"-"+p.version+"-"+runtime.Version())
	sum := sha256.New()
	parts := []string{string(gomod), string(gosum), p.target, p.binary, p.ldflags}
	for _, more := range []string{p.tests, p.tags, p.c} {
		if more != "" {
			parts = append(parts, more)
		}
	}
	if p.target == "." {
		program, err := os.ReadFile(filepath.Join(p.source, "main.go"))
		if err != nil {
			return p, err
		}
		parts = append(parts, string(program))
	}
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	p.digest = hex.EncodeToString(sum.Sum(nil))
	return p, nil
}

func (p buildPlan) done() bool {
	mark, err := os.ReadFile(filepath.Join(p.dir, builtMark))
	return err == nil && string(mark) == p.digest
}

// run builds into a temporary directory and renames it, so an interrupted build never looks finished.
func (p buildPlan) run(ctx context.Context) (err error) {
	work, err := os.MkdirTemp(filepath.Dir(p.dir), filepath.Base(p.dir)+".tmp-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(work)
		}
	}()
	out := work + string(filepath.Separator)
	if p.binary != "" {
		out = filepath.Join(work, p.binary)
	}
	if err := p.compile(ctx, p.target, "build", "-o", out); err != nil {
		return err
	}
	if p.tests != "" {
		if err := p.compile(ctx, p.tests, "test", "-c", "-o", filepath.Join(work, path.Base(p.tests)+".test")); err != nil {
			return err
		}
	}
	if p.c != "" {
		if err := p.compileC(ctx, filepath.Join(work, p.c)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(work, builtMark), []byte(p.digest), 0o644); err != nil {
		return err
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(p.dir); err != nil {
		return err
	}
	return os.Rename(work, p.dir)
}

// compile runs one command of go for a target.
func (p buildPlan) compile(ctx context.Context, target string, command ...string) error {
	args := slices.Concat(command, []string{"-trimpath", "-tags", p.tags, "-ldflags", p.ldflags, target})
	_, err := p.command(ctx, "go", args...)
	return err
}

// compileC builds the program in C of the module.
func (p buildPlan) compileC(ctx context.Context, out string) error {
	dir, err := p.command(ctx, "go", "list", "-m", "-f", "{{.Dir}}", p.module)
	if err != nil {
		return err
	}
	sources, err := filepath.Glob(filepath.Join(strings.TrimSpace(dir), p.c, "src", "*.c"))
	if err != nil {
		return err
	}
	_, err = p.command(ctx, "gcc", append([]string{"-std=c99", "-O2", "-static", "-o", out}, sources...)...)
	return err
}

// command runs a command in the tool module and returns what it printed.
func (p buildPlan) command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = p.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false -mod=readonly")
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s in %s: %w\n%s", name, strings.Join(args, " "), p.source, err, lastLines(string(output), 30))
	}
	return string(output), nil
}

// lock takes an advisory lock on the file and returns the function that releases it.
func lock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := interrupted.Repeat(func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
