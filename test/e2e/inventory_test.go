// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// inventory is the part of this machine that clusters could change.
type inventory map[string][]string

func takeInventory(t *testing.T) inventory {
	t.Helper()
	inv := inventory{"BPF pin": check.Value(filepath.Glob("/sys/fs/bpf/*"))(t)}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "net/ipv4/ip_forward"} {
		data, err := os.ReadFile(filepath.Join("/proc/sys", name))
		check.Must(t, err == nil || os.IsNotExist(err), "%v", err)
		inv["value of "+name] = []string{strings.TrimSpace(string(data))}
	}
	return inv
}

// remains returns the parts of clusters that are on this machine. A run that was killed leaves some,
// and the next cluster of the same name removes them.
func remains(t *testing.T) inventory {
	t.Helper()
	inv := inventory{
		"mount":   linesWith(t, "/proc/self/mounts", "fle2e"),
		"process": processesWith(t, "clusters/fle2e"),
	}
	for what, pattern := range map[string]string{
		"network namespace": "/run/netns/fle2e*",
		"cgroup":            "/sys/fs/cgroup/*/fle2e*",
		"unified cgroup":    "/sys/fs/cgroup/fle2e*",
		"link":              "/sys/class/net/fle2e*",
	} {
		inv[what] = check.Value(filepath.Glob(pattern))(t)
	}
	return inv
}

func (before inventory) compare(t *testing.T, after inventory) {
	t.Helper()
	for what, now := range after {
		check.That(t, slices.Equal(before[what], now), "%s: before %v, now %v", what, before[what], now)
	}
}

func linesWith(t *testing.T, file, part string) []string {
	t.Helper()
	data := check.Value(os.ReadFile(file))(t)
	var found []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

// processesWith returns the command lines that name a cluster's directory, or whose mount namespace
// shows it.
func processesWith(t *testing.T, part string) []string {
	t.Helper()
	files := check.Value(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
	var found []string
	for _, file := range files {
		args, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		mounts, err := os.ReadFile(filepath.Join(filepath.Dir(file), "mounts"))
		if err != nil {
			continue
		}
		if strings.Contains(string(args), part) || strings.Contains(string(mounts), part) {
			found = append(found, strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return found
}
