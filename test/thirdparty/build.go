// SPDX-License-Identifier: Apache-2.0

// Package thirdparty installs and builds the software that the tests need and that the project does
// not contain: Debian packages, and binaries of Kubernetes, etcd, containerd, the reference CNI
// plugins, Multus, helm and the linters.
//
// Binaries are built from Go modules. Each project has a separate tool module under modules/, because
// the dependency versions of these projects contradict each other and must not reach the go.mod of
// this project. Where they agree with each other and with this project, a package is compiled once:
// containerd, helm, CoreDNS and etcd together then take 3 min after Kubernetes. Builds are kept in
//
//	${FENCELINE_CACHE:-$HOME/.cache/fenceline}/<name>-<version>-<go version>/
//
// and repeated only if the version, the sums or the build flags change. QEMU and the kernels of its
// guests are Debian packages of other suites, which are unpacked into the cache and not installed.
//
// The package imports only the standard library, so that it runs first on a fresh machine.
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
	"github.com/fenceline/fenceline/test/must"
)

// builtMark is the file that a finished build writes beside its binaries. It holds the digest of all inputs.
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
func NewBuilder(progress io.Writer) (_ *Builder, err error) {
	defer must.Catch(&err)
	modules := filepath.Join(must.Value(Root()), "test", "thirdparty", "modules")
	return &Builder{Modules: modules, Cache: must.Value(CacheDir()), Progress: progress}, nil
}

// Dir returns the directory of the component's files. It first builds or fetches them if they are
// missing. Processes that need the same component at the same time wait for each other.
func (b *Builder) Dir(ctx context.Context, name string) (_ string, err error) {
	if u, ok := findUnpacked(name); ok {
		return b.unpackedDir(ctx, u)
	}
	defer must.CatchIn(&err, "build %s", name)
	plan := b.plan(must.Value(find(name)))
	if plan.done() {
		return plan.dir, nil
	}

	defer lock(filepath.Join(b.Cache, name+".lock"))()
	if plan.done() { // by the process that held the lock
		return plan.dir, nil
	}

	started := time.Now()
	fmt.Fprintf(b.Progress, "building %s %s\n", name, plan.version)
	plan.run(ctx)
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

func (b *Builder) plan(c Component) buildPlan {
	p := buildPlan{source: filepath.Join(b.Modules, c.Name), target: "tool", binary: c.Binary, tests: c.TestPackage, tags: c.tags, c: c.CProgram, module: c.Module}
	gomod := must.Value(os.ReadFile(filepath.Join(p.source, "go.mod")))
	gosum := must.Value(os.ReadFile(filepath.Join(p.source, "go.sum")))
	p.version = must.Value(requiredVersion(string(gomod), c.Module))
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
		parts = append(parts, string(must.Value(os.ReadFile(filepath.Join(p.source, "main.go")))))
	}
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	p.digest = hex.EncodeToString(sum.Sum(nil))
	return p
}

func (p buildPlan) done() bool {
	mark, err := os.ReadFile(filepath.Join(p.dir, builtMark))
	return err == nil && string(mark) == p.digest
}

// run builds into a temporary directory and renames it, so an interrupted build never looks finished.
func (p buildPlan) run(ctx context.Context) {
	work := must.Value(os.MkdirTemp(filepath.Dir(p.dir), filepath.Base(p.dir)+".tmp-"))
	defer os.RemoveAll(work) // a finished build has another name
	out := work + string(filepath.Separator)
	if p.binary != "" {
		out = filepath.Join(work, p.binary)
	}
	p.compile(ctx, p.target, "build", "-o", out)
	if p.tests != "" {
		p.compile(ctx, p.tests, "test", "-c", "-o", filepath.Join(work, path.Base(p.tests)+".test"))
	}
	if p.c != "" {
		p.compileC(ctx, filepath.Join(work, p.c))
	}
	must.OK(os.WriteFile(filepath.Join(work, builtMark), []byte(p.digest), 0o644))
	must.OK(os.Chmod(work, 0o755))
	must.OK(os.RemoveAll(p.dir))
	must.OK(os.Rename(work, p.dir))
}

// compile runs one command of go for a target.
func (p buildPlan) compile(ctx context.Context, target string, command ...string) {
	p.command(ctx, "go", slices.Concat(command, []string{"-trimpath", "-tags", p.tags, "-ldflags", p.ldflags, target})...)
}

// compileC builds the program in C of the module.
func (p buildPlan) compileC(ctx context.Context, out string) {
	dir := strings.TrimSpace(p.command(ctx, "go", "list", "-m", "-f", "{{.Dir}}", p.module))
	sources := must.Value(filepath.Glob(filepath.Join(dir, p.c, "src", "*.c")))
	p.command(ctx, "gcc", append([]string{"-std=c99", "-O2", "-static", "-o", out}, sources...)...)
}

// collect is for the compiler, as in the Makefile.
const collect = "GOGC=400"

// command runs a command in the tool module and returns what it printed.
func (p buildPlan) command(ctx context.Context, name string, args ...string) string {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = p.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false -mod=readonly", collect)
	output, err := cmd.CombinedOutput()
	must.That(err == nil, "%s %s in %s: %w\n%s", name, strings.Join(args, " "), p.source, err, lastLines(string(output), 30))
	return string(output)
}

// lock takes an advisory lock on the file and returns the function that releases it.
func lock(path string) (unlock func()) {
	must.OK(os.MkdirAll(filepath.Dir(path), 0o755))
	f := must.Value(os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644))
	if err := interrupted.Repeat(func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }); err != nil {
		f.Close()
		panic(must.Failure("lock %s: %w", path, err))
	}
	return func() { f.Close() }
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
