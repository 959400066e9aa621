// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package process

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

// clockVariable makes this test's program one that tells the time.
const clockVariable = "FENCELINE_TEST_TELL_TIME"

// tellTime prints its clock, and how long it has been running by the other clock.
func tellTime() {
	started := time.Now()
	for range time.Tick(time.Millisecond) {
		fmt.Println(time.Now().UnixMilli(), time.Since(started).Milliseconds())
	}
}

func TestAProcessHasAClockOfItsOwn(t *testing.T) {
	if os.Getenv(clockVariable) != "" {
		tellTime()
	}
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestAProcessHasAClockOfItsOwn$")
			cmd.Env = append(os.Environ(), clockVariable+"=1")
			out := check.Value(cmd.StdoutPipe())(t)
			check.OK(t, cmd.Start())
			p := check.Value(Find("teller", cmd.Process.Pid))(t)
			defer func() {
				check.Is(t, p.Kill(context.Background()), nil, "got")
				_ = cmd.Wait() // it was killed
			}()
			lines := bufio.NewScanner(out)
			told := func() (ahead time.Duration, running time.Duration) {
				check.Must(t, lines.Scan(), "it says nothing any more: %v", lines.Err())
				var clock, monotonic int64
				_, err := fmt.Sscan(lines.Text(), &clock, &monotonic)
				check.Must(t, err == nil, "%v", err)
				return time.Until(time.UnixMilli(clock)), time.Duration(monotonic) * time.Millisecond
			}
			ahead, _ := told()
			check.Must(t, ahead.Abs() <= time.Minute, "before, it is %s ahead", ahead)
			check.OK(t, p.ShiftClock(t.Context(), by))
			for deadline := time.Now().Add(time.Minute); ; { // what it said earlier comes first
				ahead, running := told()
				check.Must(t, !time.Now().After(deadline), "it is %s ahead, not %s", ahead, by)
				check.Must(t, running <= time.Minute, "its other clock went %s ahead", running)
				if (ahead - by).Abs() < time.Minute {
					break
				}
			}
		})
	}
}
