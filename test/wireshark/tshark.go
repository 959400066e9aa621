// SPDX-License-Identifier: Apache-2.0

package wireshark

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Fault is a frame that Wireshark finds malformed, or with an error or a wrong checksum.
type Fault struct {
	// Frame is the index of the frame in those that were judged.
	Frame int
	// Text is the summary of the frame.
	Text string
}

// Faults runs tshark, of the Debian package of this name, over frames. It does not know the claim
// protocol: of claims and acks it judges the Ethernet header only.
func Faults(ctx context.Context, all []Frame) (_ []Fault, err error) {
	dir, err := os.MkdirTemp("", "frames")
	if err != nil {
		return nil, fmt.Errorf("judge frames: %w", err)
	}
	defer os.RemoveAll(dir)
	content := Header()
	for _, f := range all {
		content = append(content, f.Record()...)
	}
	path := filepath.Join(dir, "frames.pcap")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return nil, fmt.Errorf("judge frames: %w", err)
	}
	const severityError = "0x00800000"
	cmd := exec.CommandContext(ctx, "tshark", "-n", "-r", path, "-T", "fields", "-e", "frame.number", "-e", "_ws.col.Info", "-Y",
		"_ws.malformed || _ws.short || _ws.expert.severity == "+severityError+` || icmpv6.checksum.status == "Bad" || ip.checksum.status == "Bad"`)
	cmd.Env = append(slices.Clone(os.Environ()), "HOME="+dir) // no preferences of this machine
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("run tshark over %d frames: %w: %s", len(all), err, &errs)
	}
	var faults []Fault
	for line := range strings.Lines(out.String()) {
		number, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("read the output of tshark: %q has no number of a frame", line)
		}
		faults = append(faults, Fault{n - 1, text})
	}
	return faults, nil
}
