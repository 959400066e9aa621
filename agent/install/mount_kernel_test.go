// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package install

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
)

// The mount of the container follows a directory that is moved, and a removed one takes no file.
func TestADirectoryThatIsMovedOrRemovedOnTheNodeEndsTheAgent(t *testing.T) {
	for where, dir := range map[string]func(k *keeper) string{
		"of the plugins":        func(k *keeper) string { return k.BinDir },
		"of the configurations": func(k *keeper) string { return k.ConfDir },
	} {
		for what, change := range map[string]func(dir string) error{
			"moved":   func(dir string) error { return os.Rename(dir, dir+".old") },
			"removed": os.RemoveAll,
		} {
			t.Run(where+" is "+what, func(t *testing.T) {
				t.Parallel()
				k, onNode := newKeeper(t), t.TempDir()
				check.OK(t, unix.Mount(onNode, dir(k), "", unix.MS_BIND, ""))
				t.Cleanup(func() { check.OK(t, unix.Unmount(dir(k), 0)) })
				kept := make(chan error, 1)
				go func() { kept <- k.keep(t.Context()) }()
				k.await(k.pluginPath(), "v1")
				k.await(k.conflistPath(), conflist)
				// The agent may put a file back meanwhile, or report that it cannot.
				check.Eventually(t, time.Minute, what, func() error { return change(onNode) })
				k.clock.SetTime(k.clock.Now().Add(mountInterval))
				check.Is(t, <-kept, ErrDirectoryGone, "ended with")
				for !strings.Contains(k.event(), "the directory was moved or removed on the node") {
				}
			})
		}
	}
}

// A hardened node mounts /opt so that nothing there can be executed.
func TestAPluginThatCannotBeExecutedIsNotInstalled(t *testing.T) {
	k := newKeeper(t)
	check.OK(t, unix.Mount("tmpfs", k.BinDir, "tmpfs", unix.MS_NOEXEC, ""))
	t.Cleanup(func() { check.OK(t, unix.Unmount(k.BinDir, 0)) })
	for range 2 {
		check.Says(t, k.EnsurePlugin(), k.pluginPath(), "noexec")
	}
	check.OK(t, unix.Mount("", k.BinDir, "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	check.Is(t, k.EnsurePlugin(), nil, "not installed:")
}
