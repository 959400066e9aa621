// SPDX-License-Identifier: Apache-2.0

//go:build kernel && notcx

package bpf

import (
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// The agent says at its start that the kernel has no tcx, before it attaches a program.
func TestTheKernelSaysAtOnceThatItHasNoTCX(t *testing.T) {
	k := check.Value(Open(Options{Dir: bpffs(t)}))(t)
	defer k.Close()
	equal(t, "tcx", k.HasTCX(), false)
}
