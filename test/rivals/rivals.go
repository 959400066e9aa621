// SPDX-License-Identifier: Apache-2.0

// Package rivals runs programs of others on a host of a test. Each asks the segment for an address
// before the host uses it: arping, dhcpcd, systemd-networkd, and the kernel. They need root.
package rivals

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/fenceline/fenceline/test/network"
)

// Host is a host with one interface on the segment.
type Host struct {
	*network.Namespace
	Interface string
}

// Program asks a segment for an address before a host uses it.
type Program struct {
	Name string
	// Length is that of the addresses' prefixes: 24 for IPv4, 64 for IPv6.
	Length int
	// Take has the program try an address on a host. It tells whether the program has the address,
	// which it keeps until release is called. release is never nil.
	Take func(ctx context.Context, host Host, addr netip.Prefix) (has bool, release func() error, err error)
	// Keeps tells that the program uses an address that it has. Others only tell.
	Keeps bool
}

// Programs returns those of IPv4, and the kernel for IPv6.
func Programs() []Program {
	return []Program{
		{"arping", 24, arping, false},
		{"dhcpcd", 24, Static, true},
		{"systemd-networkd", 24, networkd, true},
		{"the kernel's duplicate address detection", 64, kernelDAD, true},
	}
}

func nothing() error { return nil }

// arping is iputils' arping in the mode of duplicate address detection.
func arping(ctx context.Context, host Host, addr netip.Prefix) (bool, func() error, error) {
	cmd := host.Command(ctx, "arping", "-D", "-q", "-c", "2", "-w", "3", "-I", host.Interface, addr.Addr().String())
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
func kernelDAD(ctx context.Context, host Host, addr netip.Prefix) (bool, func() error, error) {
	if err := host.Command(ctx, "ip", "-6", "addr", "add", addr.String(), "dev", host.Interface).Run(); err != nil {
		return false, nothing, fmt.Errorf("ip addr add %s: %w", addr, err)
	}
	release := func() error {
		return host.Command(context.WithoutCancel(ctx), "ip", "-6", "addr", "del", addr.String(), "dev", host.Interface).Run()
	}
	for {
		out, err := host.Command(ctx, "ip", "-6", "-o", "addr", "show", "dev", host.Interface, "to", addr.Addr().String()).Output()
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

// Habets is arping of Thomas Habets. Debian's package of it cannot be installed beside that of
// iputils, so its files are unpacked below Root.
type Habets struct{ Root string }

// Program asks with an ARP probe.
func (h Habets) Program() Program { return Program{"arping of Habets", 24, h.take, false} }

// Duplicates asks for an address, and tells whether several hosts answer. The address host is the
// sender of the questions. It returns an error if nobody answers.
func (h Habets) Duplicates(ctx context.Context, host Host, addr netip.Addr) (bool, error) {
	answered, out, err := h.run(ctx, host, "-c", "2", addr.String())
	if err == nil && !answered {
		err = fmt.Errorf("arping %s: nobody answers: %s", addr, out)
	}
	if err != nil {
		return false, err
	}
	single, _, err := h.run(ctx, host, "-d", "-c", "2", addr.String())
	return !single, err
}

// Dots returns what arping displays for questions: an exclamation mark for each answer, a point for
// each question without one.
func (h Habets) Dots(ctx context.Context, host Host, addr netip.Addr) (string, error) {
	_, out, err := h.run(ctx, host, "-D", "-c", "3", addr.String())
	return out, err
}

// Announce announces the host's own address.
func (h Habets) Announce(ctx context.Context, host Host, addr netip.Addr) error {
	_, _, err := h.run(ctx, host, "-U", "-c", "1", addr.String())
	return err
}

func (h Habets) take(ctx context.Context, host Host, addr netip.Prefix) (bool, func() error, error) {
	answered, _, err := h.run(ctx, host, "-0", "-c", "2", addr.Addr().String())
	return !answered, nothing, err
}

// run reports whether arping exits with 0, and not with 1.
func (h Habets) run(ctx context.Context, host Host, args ...string) (bool, string, error) {
	args = append([]string{"LD_LIBRARY_PATH=" + filepath.Join(h.Root, "usr/lib/x86_64-linux-gnu"),
		filepath.Join(h.Root, "usr/sbin/arping"), "-i", host.Interface}, args...)
	out, err := host.Command(ctx, "env", args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, string(out), nil
	}
	if err != nil {
		return false, "", fmt.Errorf("arping %v: %w: %s", args, err, out)
	}
	return true, string(out), nil
}

// dhcpcd runs in the foreground of a mount namespace of its own, without the configuration of this
// machine. The arguments of the script are an address and the interface.
const dhcpcd = `mount -t tmpfs none /run && mkdir -p /var/lib/dhcpcd && mount -t tmpfs none /var/lib/dhcpcd &&
	exec dhcpcd -4 -B -d -f /dev/null --script /bin/true `

var (
	dhcpcdLost = regexp.MustCompile(`DAD detected (\S+)`)
	dhcpcdWon  = regexp.MustCompile(`adding IP address (\S+?)/`)
)

// Static is dhcpcd with a static address. Its results are those of Program.Take.
func Static(ctx context.Context, host Host, addr netip.Prefix) (has bool, release func() error, err error) {
	_, has, release, err = daemon(ctx, host, addr.String(), dhcpcd+`-S "ip_address=$1" "$2" 2>&1`, dhcpcdLost, dhcpcdWon)
	return has, release, err
}

// DHCP is dhcpcd with the address that a DHCP server of the segment offers. It returns the address,
// and whether dhcpcd has it until release is called, or has found another host that uses it.
func DHCP(ctx context.Context, host Host) (addr netip.Addr, has bool, release func() error, err error) {
	text, has, release, err := daemon(ctx, host, "", dhcpcd+`"$2" 2>&1`, dhcpcdLost, dhcpcdWon)
	if err != nil {
		return netip.Addr{}, false, release, err
	}
	if addr, err = netip.ParseAddr(text); err != nil {
		return netip.Addr{}, false, nothing, errors.Join(fmt.Errorf("read the address that dhcpcd names: %w", err), release())
	}
	return addr, has, release, nil
}

// networkd is systemd-networkd with IPv4 address conflict detection. It does not wait for udev where
// /sys is read-only. As the first process it would write its log to the kernel's.
func networkd(ctx context.Context, host Host, addr netip.Prefix) (bool, func() error, error) {
	const script = `umount --lazy /sys && mount -t sysfs sysfs /sys && mount -o remount,bind,ro /sys && mount -t tmpfs none /run &&
		mkdir -p /run/systemd/network /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/netif/lldp &&
		printf '[Match]\nName=%s\n[Network]\nLinkLocalAddressing=no\n[Address]\nAddress=%s\nDuplicateAddressDetection=ipv4\n' \
			"$2" "$1" >/run/systemd/network/static.network &&
		chown -R systemd-network /run/systemd/netif && export SYSTEMD_LOG_LEVEL=debug SYSTEMD_LOG_TARGET=console &&
		{ /lib/systemd/systemd-networkd & wait; } 2>&1`
	_, has, release, err := daemon(ctx, host, addr.String(), script,
		regexp.MustCompile(`(Dropping address)`), regexp.MustCompile(`(waiting-announce -> announcing)`))
	return has, release, err
}

// daemon runs a script with an address and the interface as arguments, in a mount namespace and a
// process namespace of its own, until its output says that it has lost or won an address. It returns
// the group of the expression that matches.
func daemon(ctx context.Context, host Host, addr, script string, lost, won *regexp.Regexp) (match string, has bool, release func() error, err error) {
	cmd := host.Command(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
		"bash", "-c", script, "bash", addr, host.Interface)
	out, in, err := os.Pipe()
	if err != nil {
		return "", false, nothing, err
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		return "", false, nothing, fmt.Errorf("start %q: %w", script, errors.Join(err, out.Close()))
	}
	lines := bufio.NewScanner(out)
	var said []string
	for lines.Scan() {
		said = append(said, lines.Text())
		if m := lost.FindStringSubmatch(lines.Text()); m != nil {
			return m[1], false, ending(cmd, out), nil
		}
		if m := won.FindStringSubmatch(lines.Text()); m != nil {
			go func() { // the pipe must not fill
				for lines.Scan() {
					continue
				}
			}()
			return m[1], true, ending(cmd, out), nil
		}
	}
	last := said[max(0, len(said)-20):]
	return "", false, nothing, errors.Join(fmt.Errorf("it ended without a decision on %q: %s", addr, strings.Join(slices.Clone(last), "\n")), ending(cmd, out)())
}

// ending returns a function that kills a daemon.
func ending(cmd *exec.Cmd, out *os.File) func() error {
	return func() error {
		err := cmd.Process.Signal(syscall.SIGKILL)
		if errors.Is(err, os.ErrProcessDone) {
			err = nil
		}
		_ = cmd.Wait() // it was killed
		return errors.Join(err, out.Close())
	}
}
