// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package network

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
)

// TestANamespaceOutlivesTheFirstOneOfIproute2 runs once more in a mount namespace
// with a /run of its own, where nobody has added a namespace yet.
func TestANamespaceOutlivesTheFirstOneOfIproute2(t *testing.T) {
	const inside = "FENCELINE_TEST_OWN_RUN"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		return
	}
	check.OK(t, unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	check.OK(t, unix.Mount("none", "/run", "tmpfs", 0, ""))
	ours, err := Create("ours")
	check.OK(t, err)
	for _, verb := range []string{"add", "del"} {
		if output, err := exec.Command("ip", "netns", verb, "theirs").CombinedOutput(); err != nil {
			t.Fatalf("ip netns %s: %v\n%s", verb, err, output)
		}
	}
	reopened, err := Open("ours")
	check.OK(t, err)
	if err := reopened.up("lo"); err != nil {
		t.Errorf("the namespace is not to be entered any more: %v", err)
	}
	if err := reopened.Close(); err != nil {
		t.Error(err)
	}
	if err := ours.Delete(); err != nil {
		t.Error(err)
	}
}
