// SPDX-License-Identifier: Apache-2.0

package rivals

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

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
