package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// defaultGrace is how long an agent may be away before STATUS fails. A runtime
// to which STATUS fails calls the whole node not Ready at once, and Services
// drop its pods, which run on all the while: an update of the agent is no
// reason for that.
const defaultGrace = time.Minute

// moment is a time of one boot, told by a clock that nobody sets.
type moment struct {
	boot string
	// up is the time since the boot, in nanoseconds in JSON, sleep included
	// (CLOCK_BOOTTIME).
	up time.Duration
}

// standing is what STATUS remembers of the agent from call to call.
type standing struct {
	// Boot is the one in which the agent has served ADD; empty: it never has.
	Boot string `json:"boot,omitempty"`
	// FailsSince is when it was first seen not to serve since then.
	FailsSince *time.Duration `json:"failsSince,omitempty"`
}

// afterFailure decides whether STATUS may still succeed. It may for some time
// in the boot in which the agent has served: before that, nothing runs that an
// error would hurt.
func (s standing) afterFailure(now moment, grace time.Duration) (next standing, forgiven bool) {
	switch {
	case s.Boot != now.boot || grace <= 0:
		return s, false
	case s.FailsSince == nil:
		return standing{Boot: s.Boot, FailsSince: &now.up}, true
	}
	return s, now.up-*s.FailsSince < grace
}

// isAbsence tells whether an error of STATUS may be that of an agent that is
// starting again. Impaired enforcement is not.
func isAbsence(err error) bool {
	if e, ok := errors.AsType[*agentapi.Error](err); ok {
		return e.Code == agentapi.CodeNotAvailable
	}
	_, ok := errors.AsType[*agentapi.AwayError](err)
	return ok
}

// standingFile keeps a standing beside the agent's socket, in a directory that
// a boot empties.
type standingFile string

func standingOf(socket string) standingFile { return standingFile(socket + ".status") }

// read returns what was written last; nothing if that is missing or damaged.
func (f standingFile) read() (standing, error) {
	text, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return standing{}, nil
	}
	if err != nil {
		return standing{}, fmt.Errorf("read since when STATUS fails: %w", err)
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
		return fmt.Errorf("encode since when STATUS fails: %w", err)
	}
	temp, err := os.CreateTemp(filepath.Dir(string(f)), ".status-*")
	if err != nil {
		return fmt.Errorf("note since when STATUS fails: %w", err)
	}
	_, err = temp.Write(text)
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), string(f))
	}
	if err != nil {
		return fmt.Errorf("note since when STATUS fails: %w", errors.Join(err, os.Remove(temp.Name())))
	}
	return nil
}

// thisMoment reads the clock.
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
