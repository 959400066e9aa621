package journal

import (
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"testing"
)

// onFullDisk names the directory to a process whose files cannot grow.
const onFullDisk = "FENCELINE_TEST_FULL_DISK"

// The disk is still full that has cut a value short: pods need their agent all the same.
func TestAJournalWithACutValueOpensOnAFullDisk(t *testing.T) {
	before, after := entry("new"), entry("new")
	after.Phase = Releasing
	if dir := os.Getenv(onFullDisk); dir != "" {
		openOnFullDisk(t, dir, before, after)
		return
	}
	first, second := written(t, before), written(t, after)
	dir := disk(t, "new@eth0.json", append(slices.Clone(first), second[:len(second)/2]...))
	// A process of its own: the limit would be that of the other tests' files as well.
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), onFullDisk+"="+dir)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	j := open(t, dir)
	put(t, j, after)
	if e, ok := reopen(t, j, dir).Get("new", "eth0"); !ok || e.Phase != after.Phase {
		t.Errorf("%v %s", ok, e.Phase)
	}
}

func openOnFullDisk(t *testing.T, dir string, before, after Entry) {
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{}); err != nil {
		t.Fatal(err)
	}
	j := open(t, dir)
	if e, ok := j.Get("new", "eth0"); !ok || e.Phase != before.Phase {
		t.Errorf("%v %s", ok, e.Phase)
	}
	if err := j.Put(after); err == nil {
		t.Error("a full disk took a value")
	}
}
