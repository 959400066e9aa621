// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

func TestStopEndsTheProcessAndIsHappyWhenItIsGone(t *testing.T) {
	p := check.Value(Start("sleeper", exec.Command("sleep", "60"), filepath.Join(t.TempDir(), "log")))(t)
	check.Must(t, p.Alive(), "not alive after its start")
	for range 2 {
		check.OK(t, p.Stop(context.Background(), time.Second))
		check.Must(t, !p.Alive(), "alive after Stop")
	}
}

func TestStopKillsWhatIgnoresSIGTERM(t *testing.T) {
	p := check.Value(Start("stubborn", exec.Command("sh", "-c", `trap "" TERM; while :; do sleep 0.05; done`), filepath.Join(t.TempDir(), "log")))(t)
	check.OK(t, p.Stop(context.Background(), 50*time.Millisecond))
	check.Must(t, !p.Alive(), "alive after Stop")
}

func TestAReusedPIDIsNotTheProcess(t *testing.T) {
	p := check.Value(Start("sleeper", exec.Command("sleep", "60"), filepath.Join(t.TempDir(), "log")))(t)
	t.Cleanup(func() {
		check.Is(t, p.Kill(context.Background()), nil, "got")
	})
	other := p
	other.Started++
	check.Must(t, !other.Alive(), "a process with another start time counts as the same")
	check.OK(t, other.Kill(context.Background()))
	check.Must(t, p.Alive(), "killing the predecessor of a PID has ended its successor")
}

func TestParseStatCopesWithNamesThatLookLikeFields(t *testing.T) {
	const text = "42 (a) Z (1 2) S 7 42 42 0 -1 4194560 1 0 0 0 5 2 9 9 20 0 1 0 123456 1 1"
	got, err := parseStat(text)
	want := (stat{state: "S", parent: 7, threads: 1, started: 123456, cpu: 70 * time.Millisecond})
	check.That(t, err == nil && got == want, "got %+v, %v; want %+v", got, err, want)
}

func TestAProcessHasEndedWithItsLastThread(t *testing.T) {
	for name, c := range map[string]struct {
		stat
		ended bool
	}{
		"it runs":                     {stat{state: "S", threads: 3}, false},
		"its first thread has ended":  {stat{state: "Z", threads: 2}, false},
		"all threads have ended":      {stat{state: "Z", threads: 1}, true},
		"it is about to be forgotten": {stat{state: "X"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, c.stat.ended(), c.ended, "ended")
		})
	}
}
