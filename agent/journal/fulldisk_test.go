package journal

import (
	"os/signal"
	"slices"
	"syscall"
	"testing"
)

// The disk is still full that has cut a value short: pods need their agent all the same.
func TestAJournalWithACutValueOpensOnAFullDisk(t *testing.T) {
	before, after := entry("new"), entry("new")
	after.Phase = Releasing
	first, second := written(t, before), written(t, after)
	dir := disk(t, "new@eth0.json", append(slices.Clone(first), second[:len(second)/2]...))
	full(t, func() {
		j := open(t, dir)
		if e, ok := j.Get("new", "eth0"); !ok || e.Phase != before.Phase {
			t.Errorf("%v %s", ok, e.Phase)
		}
		if err := j.Put(after); err == nil {
			t.Error("a full disk took a value")
		}
		j.Close()
	})
	j := open(t, dir)
	put(t, j, after)
	if e, ok := reopen(t, j, dir).Get("new", "eth0"); !ok || e.Phase != after.Phase {
		t.Errorf("%v %s", ok, e.Phase)
	}
}

// full runs fn while no file of this process may grow.
func full(t *testing.T, fn func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Error(err)
		}
	}()
	fn()
}
