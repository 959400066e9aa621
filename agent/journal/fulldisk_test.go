// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// onFullDisk names the directory to a process whose files cannot grow.
const onFullDisk = "FENCELINE_TEST_FULL_DISK"

// Pods come and go while the disk is full: they free it.
func TestAJournalOpensOnAFullDiskAndLosesNothing(t *testing.T) {
	before, after := entry("new"), entry("new")
	after.Phase = Releasing
	if dir := os.Getenv(onFullDisk); dir != "" {
		useFullDisk(t, dir, before, after)
		return
	}
	dir := disk(t, "new@eth0.json", written(t, before))
	// A process of its own: the limit would apply to the files of the other tests as well.
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), onFullDisk+"="+dir)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	j := open(t, dir)
	if got := j.All(); len(got) != 1 || got[0].ContainerID != "new" || got[0].Phase != before.Phase {
		t.Errorf("entries after a full disk: %v", got)
	}
	put(t, j, after)
	if e, ok := reopen(t, j, dir).Get("new", "eth0"); !ok || e.Phase != after.Phase {
		t.Errorf("%v %s", ok, e.Phase)
	}
}

func useFullDisk(t *testing.T, dir string, before, after Entry) {
	signal.Ignore(syscall.SIGXFSZ)
	check.OK(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{}))
	j := open(t, dir)
	for _, e := range []Entry{after, entry("another")} {
		err := j.Put(e)
		if !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), e.ContainerID) {
			t.Errorf("Put on a full disk: %v, want an error that names the container", err)
		}
	}
	if e, ok := j.Get("new", "eth0"); !ok || e.Phase != before.Phase {
		t.Errorf("%v %s", ok, e.Phase)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, entriesDir, tempPattern)); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
	// To remove an entry takes no space.
	if err := j.Remove("old", "eth0"); err != nil {
		t.Error(err)
	}
}
