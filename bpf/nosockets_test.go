// SPDX-License-Identifier: Apache-2.0

//go:build kernel && nosockets

package bpf

import (
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// On Linux before 5.15, the program cannot know the network namespace of a socket.
func TestTheKernelSaysAtOnceThatItCannotGuardSockets(t *testing.T) {
	k := openKernelWith(t, Options{Dir: bpffs(t), Cgroup: hierarchy(t)})
	check.That(t, k.SocketsUnguarded() != nil, "it guards them")
	equal(t, "may bypass", k.MayBypass(1), true)
}
