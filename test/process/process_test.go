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
	if !p.Alive() {
		t.Fatal("not alive after its start")
	}
	for range 2 {
		check.OK(t, p.Stop(context.Background(), time.Second))
		if p.Alive() {
			t.Fatal("alive after Stop")
		}
	}
}

func TestStopKillsWhatIgnoresSIGTERM(t *testing.T) {
	p := check.Value(Start("stubborn", exec.Command("sh", "-c", `trap "" TERM; while :; do sleep 0.05; done`), filepath.Join(t.TempDir(), "log")))(t)
	check.OK(t, p.Stop(context.Background(), 50*time.Millisecond))
	if p.Alive() {
		t.Fatal("alive after Stop")
	}
}

func TestAReusedPIDIsNotTheProcess(t *testing.T) {
	p, err := Start("sleeper", exec.Command("sleep", "60"), filepath.Join(t.TempDir(), "log"))
	check.OK(t, err)
	t.Cleanup(func() {
		if err := p.Kill(context.Background()); err != nil {
			t.Error(err)
		}
	})
	other := p
	other.Started++
	if other.Alive() {
		t.Fatal("a process with another start time counts as the same")
	}
	check.OK(t, other.Kill(context.Background()))
	if !p.Alive() {
		t.Fatal("killing the predecessor of a PID has ended its successor")
	}
}

func TestParseStatCopesWithNamesThatLookLikeFields(t *testing.T) {
	const text = "42 (a) Z (1 2) S 7 42 42 0 -1 4194560 1 0 0 0 5 2 9 9 20 0 1 0 123456 1 1"
	got, err := parseStat(text)
	if want := (stat{state: "S", parent: 7, threads: 1, started: 123456, cpu: 70 * time.Millisecond}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
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
			if got := c.stat.ended(); got != c.ended {
				t.Errorf("ended %v, want %v", got, c.ended)
			}
		})
	}
}
