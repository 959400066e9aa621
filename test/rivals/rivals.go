// SPDX-License-Identifier: Apache-2.0

package rivals

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
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
