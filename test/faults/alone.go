// SPDX-License-Identifier: Apache-2.0

//go:build linux

package faults

import (
	"os"
	"os/exec"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// inside is set in the process of one test.
const inside = "FENCELINE_FAULTS"

// Alone runs the calling test in a process of its own. It returns nil in the first process, whose
// test has the outcome of the second one, and the faults in the second process.
func Alone(t *testing.T) *Faults {
	t.Helper()
	if os.Getenv(inside) != t.Name() {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
		cmd.Env = append(os.Environ(), inside+"="+t.Name())
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		check.That(t, err == nil, "in a process of its own: %v", err)
		return nil
	}
	f := check.Value(Install())(t)
	return f
}
