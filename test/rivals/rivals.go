// SPDX-License-Identifier: Apache-2.0

// Package rivals runs programs of others on a host of a test. Each asks the segment for an address
// before the host uses it: arping, dhcpcd, systemd-networkd, and the kernel. They need root.
package rivals

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"

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
func (h Habets) Program() Program {
	return Program{"arping of Habets", 24, h.take, false}
}

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
