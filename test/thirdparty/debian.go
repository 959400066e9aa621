// SPDX-License-Identifier: Apache-2.0

package thirdparty

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/test/must"
)

// Names of the components that are Debian packages. They are unpacked into the cache, not installed:
// a kernel cannot be installed here, QEMU would install hundreds of packages, arping would remove
// another package, Prometheus would start a service, and the files of Userland are for images.
const (
	QEMU         = "qemu" // from the backports, because the release's version cannot emulate SR-IOV
	KernelOldest = "linux-5.10"
	Kernel61     = "linux-6.1"
	Kernel612    = "linux-6.12"
	KernelNewest = "linux-newest"
	Arping       = "arping"      // of Habets; its package conflicts with iputils-arping
	Prometheus   = "prometheus"  // and promtool, in usr/bin
	OpenVSwitch  = "openvswitch" // its daemons, and the libraries that they need
	Userland     = "userland"    // a root file system: shell, curl, dig, nc, and all libraries that they need
)

// unpacked is a component that comes as Debian packages.
type unpacked struct {
	name, suite string
	arch        string // of the packages
	// names returns the packages to fetch, the one whose version counts first.
	names func(context.Context, apt) []string
}

func unpackedComponents() []unpacked {
	return []unpacked{
		{QEMU, "bookworm-backports", "amd64", closureOf("qemu-system-x86")},
		{KernelOldest, "bullseye", "amd64", kernelPackages},
		{Kernel61, "bookworm", "amd64", kernelPackages},
		{Kernel612, "bookworm-backports", "amd64", kernelPackages},
		{KernelNewest, "sid", "amd64", kernelPackages},
		{For("arm64", QEMU), "bookworm-backports", "amd64", closureOf("qemu-system-arm", "qemu-user")},
		{For("arm64", KernelOldest), "bullseye", "arm64", kernelPackages},
		{For("arm64", Kernel61), "bookworm", "arm64", kernelPackages},
		{For("arm64", Kernel612), "bookworm-backports", "arm64", kernelPackages},
		{For("arm64", KernelNewest), "sid", "arm64", kernelPackages},
		{Arping, "bookworm", "amd64", closureOf("arping")},
		{Prometheus, "bookworm", "amd64", prometheusPackages},
		{OpenVSwitch, "bookworm", "amd64", switchPackages},
		{Userland, "bookworm", "amd64", userlandPackages},
	}
}

// For returns the name of the QEMU or the kernel of guests with another processor.
func For(arch, name string) string {
	if arch == "amd64" {
		return name
	}
	return arch + "-" + name
}

func findUnpacked(name string) (unpacked, bool) {
	all := unpackedComponents()
	i := slices.IndexFunc(all, func(u unpacked) bool { return u.name == name })
	if i < 0 {
		return unpacked{}, false
	}
	return all[i], true
}

// unpackedDir returns the directory of a component's files, <name>-<version>. It keeps an existing
// directory: remove it to fetch the newest version of the suite.
func (b *Builder) unpackedDir(ctx context.Context, u unpacked) (dir string, err error) {
	if dir, ok := b.present(u); ok {
		return dir, nil
	}
	defer must.CatchIn(&err, "fetch %s", u.name)
	defer lock(filepath.Join(b.Cache, u.name+".lock"))()
	if dir, ok := b.present(u); ok { // by the process that held the lock
		return dir, nil
	}
	started := time.Now()
	fmt.Fprintf(b.Progress, "fetching %s\n", u.name)
	dir = b.fetch(ctx, u)
	fmt.Fprintf(b.Progress, "fetching %s: %s in %s\n", u.name, filepath.Base(dir), time.Since(started).Round(time.Second))
	return dir, nil
}

func (b *Builder) present(u unpacked) (string, bool) {
	marks, err := filepath.Glob(filepath.Join(b.Cache, u.name+"-*", builtMark))
	if err != nil || len(marks) == 0 {
		return "", false
	}
	return filepath.Dir(slices.Max(marks)), true
}

// fetch unpacks into a temporary directory and renames it, as builds do.
func (b *Builder) fetch(ctx context.Context, u unpacked) (dir string) {
	work := must.Value(os.MkdirTemp(b.Cache, u.name+".tmp-"))
	defer func() { must.OK(os.RemoveAll(work)) }()
	a := newAPT(ctx, filepath.Join(work, "apt"), u.suite, u.arch)
	root := filepath.Join(work, "root")
	version := a.unpack(ctx, root, u.names(ctx, a))
	must.OK(os.WriteFile(filepath.Join(root, builtMark), []byte(version), 0o644))
	dir = filepath.Join(b.Cache, u.name+"-"+version)
	must.OK(os.RemoveAll(dir))
	must.OK(os.Rename(root, dir))
	return dir
}

// closureOf names packages and their dependencies that this machine lacks.
func closureOf(packages ...string) func(context.Context, apt) []string {
	return func(ctx context.Context, a apt) []string { return a.closure(ctx, packages) }
}

// prometheusPackages returns Prometheus without its dependencies: its programs need only libc.
func prometheusPackages(context.Context, apt) []string { return []string{"prometheus"} }

// userlandPackages returns what the commands of Kubernetes' e2e tests need in a container, with all
// dependencies, as if this machine had no package at all.
func userlandPackages(ctx context.Context, a apt) []string {
	commands := []string{"curl", "bind9-dnsutils", "netcat-openbsd", "coreutils", "dash", "grep", "hostname", "libc-bin", "mawk", "sed"}
	return a.closure(ctx, commands, "-o", "Dir::State::status=/dev/null")
}

// switchPackages returns the daemons of Open vSwitch and all their libraries, without the scripts around them.
func switchPackages(ctx context.Context, a apt) []string {
	libraries := a.dependencies(ctx, "openvswitch-switch", "lib")
	return append([]string{"openvswitch-switch", "openvswitch-common"}, a.closure(ctx, libraries, "-o", "Dir::State::status=/dev/null")...)
}

// closure returns the packages, the first one first, and their dependencies that are not installed.
func (a apt) closure(ctx context.Context, packages []string, options ...string) []string {
	args := append([]string{"install", "--simulate", "--no-install-recommends", "-t", a.suite}, options...)
	return packagesOf(a.run(ctx, "apt-get", append(args, packages...)...), packages[0])
}

// packagesOf returns the packages of a simulated installation, the package first before all others.
func packagesOf(plan, first string) []string {
	names := []string{first}
	for line := range strings.Lines(plan) { // "Inst name (version …)"
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Inst" && f[1] != first {
			names = append(names, f[1])
		}
	}
	return names
}

// kernelPackages returns the packages of the suite's newest kernel. Since 7.x, image and modules are
// separate packages.
func kernelPackages(ctx context.Context, a apt) []string {
	images := a.dependencies(ctx, "linux-image-"+a.arch, "linux-image-")
	must.That(len(images) == 1, "find the kernel of %s: packages %v, want one", a.suite, images)
	return append(images, a.dependencies(ctx, images[0], "linux-binary-", "linux-modules-")...)
}

// apt is a separate package index. It changes nothing of the machine's own index.
type apt struct {
	dir, suite, arch string
	options          []string
}

func newAPT(ctx context.Context, dir, suite, arch string) apt {
	a := apt{dir: dir, suite: suite, arch: arch}
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		must.OK(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	mirror := mirror(ctx)
	// The dependencies of QEMU come from the release.
	var sources strings.Builder
	for _, s := range slices.Compact([]string{suite, strings.TrimSuffix(suite, "-backports")}) {
		fmt.Fprintf(&sources, "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", mirror, s)
	}
	list := filepath.Join(dir, "sources.list")
	must.OK(os.WriteFile(list, []byte(sources.String()), 0o644))
	for _, option := range []string{
		"Dir::State::Lists=" + filepath.Join(dir, "lists"), "Dir::Cache=" + filepath.Join(dir, "cache"),
		"Dir::Etc::SourceList=" + list, "Dir::Etc::SourceParts=/dev/null",
		"Dir::Etc::Preferences=/dev/null", "Dir::Etc::PreferencesParts=/dev/null",
		"APT::Architecture=" + arch, "APT::Architectures=" + arch, "APT::Sandbox::User=root", "Debug::NoLocking=1", "Acquire::Languages=none",
	} {
		a.options = append(a.options, "-o", option)
	}
	a.run(ctx, "apt-get", "update", "-q")
	return a
}

// mirror returns the mirror of this machine's own packages.
func mirror(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages").Output()
	must.Done(err, "read the mirrors of apt")
	for line := range strings.Lines(string(out)) {
		if uri := strings.TrimSpace(line); strings.HasSuffix(uri, "/debian/") {
			return uri
		}
	}
	panic(must.Failure("the sources of apt name no mirror of Debian"))
}

// run runs a command of apt and returns its output.
func (a apt) run(ctx context.Context, name string, args ...string) string {
	cmd := exec.CommandContext(ctx, name, append(slices.Clone(a.options), args...)...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.Dir = &stdout, &stderr, a.dir
	err := cmd.Run()
	must.That(err == nil, "%s %s: %w\n%s", name, strings.Join(args, " "), err, lastLines(stderr.String(), 30))
	return stdout.String()
}

// dependencies are those of a package whose name begins with one of the prefixes.
func (a apt) dependencies(ctx context.Context, name string, prefixes ...string) []string {
	return dependenciesOf(a.run(ctx, "apt-cache", "show", "--no-all-versions", name+"/"+a.suite), prefixes)
}

func dependenciesOf(record string, prefixes []string) []string {
	var names []string
	for line := range strings.Lines(record) {
		list, ok := strings.CutPrefix(line, "Depends:")
		if !ok {
			continue
		}
		for one := range strings.SplitSeq(list, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(one), " ")
			if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
				names = append(names, name)
			}
		}
	}
	return names
}

// unpack fetches packages of the suite, unpacks them under root and returns the version of the first.
func (a apt) unpack(ctx context.Context, root string, names []string) (version string) {
	a.run(ctx, "apt-get", append([]string{"download", "-q", "-t", a.suite}, names...)...)
	for i, name := range names {
		name, _, _ := strings.Cut(name, ":")
		files := must.Value(filepath.Glob(filepath.Join(a.dir, name+"_*.deb")))
		must.That(len(files) == 1, "download of package %s: %d files, want 1", name, len(files))
		output, err := exec.CommandContext(ctx, "dpkg-deb", "-x", files[0], root).CombinedOutput()
		must.That(err == nil, "unpack %s: %w\n%s", name, err, output)
		if i == 0 {
			version = strings.Split(filepath.Base(files[0]), "_")[1]
		}
	}
	return version
}

// packages returns the Debian packages of the tests and of `make generate`.
func packages() []string {
	return []string{
		"ca-certificates",                           // the Go module proxy uses TLS
		"runc",                                      // the runtime below containerd
		"util-linux",                                // nsenter
		"iproute2",                                  // ip, tc, bridge
		"iptables", "nftables", "conntrack", "kmod", // kube-proxy and kubelet
		"mount", "procps",
		"iputils-arping", "iputils-ping", "ndisc6", "tcpdump", "curl", "jq", "keepalived", // peers and observers in tests
		"busybox-static",   // an image for the examples
		"xz-utils", "zstd", // how kernels and their modules are packed
		"arp-scan", "dhcpcd-base", "dnsmasq-base", "systemd", "tshark", // judges; none of them starts a service
		"gcc", "libc6-dev", // the race detector
		"spin", "tcc", // the model checker, and a compiler for its searches
		"clang-14", "llvm-14", "clang-format-14", // BPF objects: byte-reproducible for one clang version
	}
}

// InstallPackages installs the Debian packages that are missing, and those of more, which needs root. If none is missing,
// it changes nothing and contacts no package server.
func InstallPackages(ctx context.Context, progress io.Writer, more ...string) (err error) {
	defer must.Catch(&err)
	missing := missingPackages(ctx, append(packages(), more...))
	if len(missing) == 0 {
		return nil
	}
	must.That(os.Geteuid() == 0, "install %s: root is needed", strings.Join(missing, " "))
	fmt.Fprintf(progress, "installing %s\n", strings.Join(missing, " "))
	started := time.Now()
	install := append([]string{"install", "-y", "--no-install-recommends"}, missing...)
	for _, args := range [][]string{{"update"}, install} {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=120"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		output, err := cmd.CombinedOutput()
		must.That(err == nil, "apt-get %s: %w\n%s", strings.Join(args, " "), err, lastLines(string(output), 30))
	}
	fmt.Fprintf(progress, "installing packages: done in %s\n", time.Since(started).Round(time.Second))
	return nil
}

// missingPackages returns the wanted packages that are not installed.
func missingPackages(ctx context.Context, wanted []string) []string {
	args := append([]string{"-W", "-f", "${db:Status-Status} ${Package}\n"}, wanted...)
	cmd := exec.CommandContext(ctx, "dpkg-query", args...)
	var stdout strings.Builder
	cmd.Stdout = &stdout
	// dpkg-query exits with 1 when it does not know one of the names.
	if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != 1 {
		panic(must.Failure("list installed packages with dpkg-query: %w", err))
	}
	return notInstalled(stdout.String(), wanted)
}

func notInstalled(dpkg string, wanted []string) []string {
	installed := map[string]bool{}
	for line := range strings.Lines(dpkg) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "installed "); ok {
			installed[name] = true
		}
	}
	var missing []string
	for _, name := range wanted {
		if !installed[name] {
			missing = append(missing, name)
		}
	}
	return missing
}
