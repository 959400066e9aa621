// SPDX-License-Identifier: Apache-2.0

package rivals

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
)

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
