// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package judges_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/fenceline/fenceline/test/namespaces"
)

// program is a program that asks a segment for an address before it uses it.
type program struct {
	name string
	// length is that of the addresses' prefixes: 24 for IPv4, 64 for IPv6.
	length int
	// take has the program try an address on a host. It tells whether the program has the address,
	// which it keeps until release is called.
	take func(ctx context.Context, host *namespaces.Host, addr netip.Prefix) (has bool, release func() error, err error)
	// keeps tells that the program uses an address that it has. Others only tell.
	keeps bool
}

// programs of IPv4, and the kernel for IPv6.
func programs() []program {
	return []program{
		{"arping", 24, arping, false},
		{"dhcpcd", 24, dhcpcd, true},
		{"systemd-networkd", 24, networkd, true},
		{"the kernel's duplicate address detection", 64, kernelDAD, true},
	}
}

func nothing() error { return nil }

// arping is iputils' arping in the mode of duplicate address detection.
func arping(ctx context.Context, host *namespaces.Host, addr netip.Prefix) (bool, func() error, error) {
	cmd := host.Command(ctx, "arping", "-D", "-q", "-c", "2", "-w", "3", "-I", namespaces.HostInterface, addr.Addr().String())
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nothing, nil
	}
	if err != nil {
		return false, nothing, fmt.Errorf("arping %s: %w: %s", addr, err, out)
	}
	return true, nothing, nil
}

// kernelDAD gives the host the address, and asks the kernel how it went (RFC 4862 section 5.4).
func kernelDAD(ctx context.Context, host *namespaces.Host, addr netip.Prefix) (bool, func() error, error) {
	if err := host.Command(ctx, "ip", "-6", "addr", "add", addr.String(), "dev", namespaces.HostInterface).Run(); err != nil {
		return false, nothing, fmt.Errorf("ip addr add %s: %w", addr, err)
	}
	release := func() error {
		return host.Command(context.WithoutCancel(ctx), "ip", "-6", "addr", "del", addr.String(), "dev", namespaces.HostInterface).Run()
	}
	for {
		out, err := host.Command(ctx, "ip", "-6", "-o", "addr", "show", "dev", namespaces.HostInterface, "to", addr.Addr().String()).Output()
		if err != nil {
			return false, release, fmt.Errorf("ip addr show %s: %w", addr, err)
		}
		if strings.Contains(string(out), "dadfailed") {
			return false, release, nil
		}
		if !strings.Contains(string(out), "tentative") {
			return true, release, nil
		}
	}
}

// dhcpcd is a DHCP client with a static address.
func dhcpcd(ctx context.Context, host *namespaces.Host, addr netip.Prefix) (bool, func() error, error) {
	const script = `mount -t tmpfs none /run && mkdir -p /var/lib/dhcpcd && mount -t tmpfs none /var/lib/dhcpcd &&
		exec dhcpcd -4 -B -d -f /dev/null --script /bin/true -S "ip_address=$1" "$2" 2>&1`
	return daemon(ctx, host, addr, script, "DAD detected", "adding IP address")
}

// networkd is systemd-networkd with IPv4 address conflict detection. It does not wait for udev where
// /sys is read-only. As the first process it would write its log to the kernel's.
func networkd(ctx context.Context, host *namespaces.Host, addr netip.Prefix) (bool, func() error, error) {
	const script = `umount --lazy /sys && mount -t sysfs sysfs /sys && mount -o remount,bind,ro /sys && mount -t tmpfs none /run &&
		mkdir -p /run/systemd/network /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp &&
		printf '[Match]\nName=%s\n[Network]\nLinkLocalAddressing=no\n[Address]\nAddress=%s\nDuplicateAddressDetection=ipv4\n' \
			"$2" "$1" >/run/systemd/network/static.network &&
		chown -R systemd-network /run/systemd/netif && export SYSTEMD_LOG_LEVEL=debug SYSTEMD_LOG_TARGET=console &&
		{ /lib/systemd/systemd-networkd & wait; } 2>&1`
	return daemon(ctx, host, addr, script, "Dropping address", "waiting-announce -> announcing")
}

// daemon runs a script with the arguments address and interface, in a mount namespace and a process
// namespace of its own. Its output says whether it has lost or won the address.
func daemon(ctx context.Context, host *namespaces.Host, addr netip.Prefix, script, lost, won string) (bool, func() error, error) {
	cmd := host.Command(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
		"bash", "-c", script, "bash", addr.String(), namespaces.HostInterface)
	out, in, err := os.Pipe()
	if err != nil {
		return false, nothing, err
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		return false, nothing, fmt.Errorf("start %q: %w", script, errors.Join(err, out.Close()))
	}
	lines := bufio.NewScanner(out)
	release := func() error {
		err := cmd.Process.Signal(syscall.SIGKILL)
		if errors.Is(err, os.ErrProcessDone) {
			err = nil
		}
		_ = cmd.Wait() // it was killed
		return errors.Join(err, out.Close())
	}
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
		switch {
		case strings.Contains(lines.Text(), lost):
			return false, release, nil
		case strings.Contains(lines.Text(), won):
			go func() { // the pipe must not fill
				for lines.Scan() {
					continue
				}
			}()
			return true, release, nil
		}
	}
	last := said[max(0, len(said)-20):]
	return false, nothing, errors.Join(fmt.Errorf("it ended without a decision on %s: %s", addr, strings.Join(slices.Clone(last), "\n")), release())
}
