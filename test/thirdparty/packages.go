// SPDX-License-Identifier: Apache-2.0

package thirdparty

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/fenceline/fenceline/test/must"
)

// packages returns the Debian packages of the tests and of `make generate`.
func packages() []string {
	return []string{
		"ca-certificates",                           // the Go module proxy uses TLS
		"runc",                                      // the runtime below containerd
		"util-linux",                                // nsenter
		"iproute2",                                  // ip, tc, bridge
		"iptables", "nftables", "conntrack", "kmod", // kube-proxy and kubelet
		"mount", "procps",
		"iputils-arping", "iputils-ping", "ndisc6", "tcpdump", "curl", "jq", // peers and observers in tests
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
