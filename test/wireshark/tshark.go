// SPDX-License-Identifier: Apache-2.0

package wireshark

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/test/must"
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
	defer must.Catch(&err)
	dir := must.Value(os.MkdirTemp("", "frames"))
	defer os.RemoveAll(dir)
	content := Header()
	for _, f := range all {
		content = append(content, f.Record()...)
	}
	path := filepath.Join(dir, "frames.pcap")
	must.OK(os.WriteFile(path, content, 0o600))
	const severityError = "0x00800000"
	cmd := exec.CommandContext(ctx, "tshark", "-n", "-r", path, "-T", "fields", "-e", "frame.number", "-e", "_ws.col.Info", "-Y",
		"_ws.malformed || _ws.short || _ws.expert.severity == "+severityError+` || icmpv6.checksum.status == "Bad" || ip.checksum.status == "Bad"`)
	cmd.Env = append(slices.Clone(os.Environ()), "HOME="+dir) // no preferences of this machine
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	must.That(err == nil, "run tshark over %d frames: %w: %s", len(all), err, &errs)
	var faults []Fault
	for line := range strings.Lines(out.String()) {
		number, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
		n, err := strconv.Atoi(number)
		must.That(err == nil, "read the output of tshark: %q has no number of a frame", line)
		faults = append(faults, Fault{n - 1, text})
	}
	return faults, nil
}
