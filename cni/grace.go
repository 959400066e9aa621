// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/wholefile"
)

// defaultGrace is how long STATUS succeeds without an answer of the agent. When STATUS fails, the
// runtime reports the node as not Ready at once, and Services drop its pods, which still run. An
// update of the agent must not cause that.
const defaultGrace = time.Minute

// moment is a time of one boot, by a clock that cannot be set.
type moment struct {
	boot string
	// up is the time since the boot, in nanoseconds in JSON, sleep included (CLOCK_BOOTTIME).
	up time.Duration
}

// standing is the state of STATUS between calls.
type standing struct {
	// Boot is the ID of the boot in which the agent was last ready for ADD; empty: it never was.
	Boot string `json:"boot,omitempty"`
	// FailsSince is the time of the first failure since the agent was last ready.
	FailsSince *time.Duration `json:"failsSince,omitempty"`
}

// afterFailure decides whether STATUS still succeeds after a failure. It does so for the time
// grace, in the boot in which the agent was ready. Before the agent was ready, no pod runs that a
// failure of STATUS would harm.
func (s standing) afterFailure(now moment, grace time.Duration) (next standing, forgiven bool) {
	switch {
	case s.Boot != now.boot || grace <= 0:
		return s, false
	case s.FailsSince == nil:
		return standing{Boot: s.Boot, FailsSince: &now.up}, true
	}
	return s, now.up-*s.FailsSince < grace
}

// isAbsence reports whether the cause of an error of STATUS may be a restart of the agent. Impaired
// enforcement is another cause.
func isAbsence(err error) bool {
	if e, ok := errors.AsType[*agentapi.Error](err); ok {
		return e.Code == agentapi.CodeNotAvailable
	}
	_, ok := errors.AsType[*agentapi.NoAnswerError](err)
	return ok
}

// standingFile is the path of the file that holds a standing. It is next to the agent's socket, in
// a directory that is empty after a boot.
type standingFile string

func standingOf(socket string) standingFile { return standingFile(socket + ".status") }

// read returns the standing that was written last, the zero standing if the file is missing or damaged.
func (f standingFile) read() (standing, error) {
	text, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return standing{}, nil
	}
	if err != nil {
		return standing{}, fmt.Errorf("read the state of STATUS: %w", err)
	}
	var s standing
	if json.Unmarshal(text, &s) != nil {
		s = standing{}
	}
	return s, nil
}

// write replaces the file by rename: calls may overlap.
func (f standingFile) write(s standing) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the state of STATUS: %w", err)
	}
	if err := wholefile.Replace(string(f), ".status-*", text, 0o600); err != nil {
		return fmt.Errorf("write the state of STATUS: %w", err)
	}
	return nil
}

func thisMoment() (moment, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return moment{}, fmt.Errorf("read the boot ID: %w", err)
	}
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return moment{}, fmt.Errorf("read the time since the boot: %w", err)
	}
	return moment{strings.TrimSpace(string(boot)), time.Duration(up.Nano())}, nil
}
