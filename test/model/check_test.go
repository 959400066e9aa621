// SPDX-License-Identifier: Apache-2.0

//go:build model

package model

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

const (
	// mostDepth is more steps than any run of the model has.
	mostDepth = 1000
	// fullHash is the least ratio of bits to states at which a search in a bit
	// table counts as complete: spin's own advice.
	fullHash = 100.0
	// patience bounds one check. The largest takes a minute of an idle core.
	patience = 15 * time.Minute
)

// search is one call of the model checker.
type search struct {
	// defines are the bounds and the rules left out, as -D options without the -D.
	defines []string
	// bits is the binary logarithm of the size of the bit table of states.
	bits int
	// long is a search that is worth the time of an optimizing compiler.
	long bool
}

// found is what the checker says.
type found struct {
	// violated is the name of the property in the failed assertion, empty when none failed.
	violated string
	states   uint64
	depth    int
	hash     float64
	elapsed  time.Duration
	// trace is the way to the violation.
	trace string
}

func (f found) String() string {
	return fmt.Sprintf("%d states, %d steps deep, %s, hash factor %.0f", f.states, f.depth, f.elapsed.Round(time.Millisecond), f.hash)
}

// check builds the checker of a search and runs it.
func (s search) check(t *testing.T) found {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := t.TempDir()
	check.OK(t, os.CopyFS(dir, os.DirFS(".")))
	options := make([]string, 0, len(s.defines))
	for _, d := range s.defines {
		options = append(options, "-D"+d)
	}
	started := time.Now()
	command(ctx, t, dir, "spin", append(append([]string{"-a"}, options...), "fenceline.pml")...)
	// No partial order reduction: every step may depend on every other.
	compiler := "tcc" // 0.04 s, gcc -O0 1.2 s
	if s.long {
		compiler = "gcc" // 3.6 s, and the search takes 0.4 times as long
	}
	command(ctx, t, dir, compiler, "-w", "-O1", "-DSAFETY", "-DNOREDUCE", "-DBITSTATE", "-o", "pan", "pan.c")
	out := command(ctx, t, dir, "./pan", fmt.Sprintf("-w%d", s.bits), fmt.Sprintf("-m%d", mostDepth))
	f, err := read(out)
	check.Must(t, err == nil, "%v in what the checker says:\n%s", err, out)
	f.elapsed = time.Since(started)
	if f.violated != "" {
		f.trace = trace(command(ctx, t, dir, "spin", append(append([]string{"-t", "-p", "-g"}, options...), "fenceline.pml")...))
	}
	return f
}

func command(ctx context.Context, t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	check.Must(t, !errors.Is(err, exec.ErrNotFound), "%s is missing: run `make packages` as root, or apt-get install spin tcc gcc libc6-dev", name)
	if err != nil || strings.Contains(string(out), "Error: ") && filepath.Base(name) == "spin" && args[0] == "-a" {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// read takes the checker's own summary apart.
func read(out string) (found, error) {
	var f found
	number := func(pattern string) (float64, error) {
		m := regexp.MustCompile(pattern).FindStringSubmatch(out)
		if m == nil {
			return 0, fmt.Errorf("no %q", pattern)
		}
		return strconv.ParseFloat(m[1], 64)
	}
	if strings.Contains(out, "max search depth too small") {
		return f, fmt.Errorf("runs longer than %d steps", mostDepth)
	}
	states, err := number(`([\d.e+]+) states, stored`)
	if err != nil {
		return f, err
	}
	depth, err := number(`depth reached (\d+)`)
	if err != nil {
		return f, err
	}
	if f.hash, err = number(`hash factor: ([\d.e+]+)`); err != nil {
		return f, err
	}
	wrong, err := number(`errors: (\d+)`)
	if err != nil {
		return f, err
	}
	f.states, f.depth = uint64(states), int(depth)
	if wrong > 0 {
		name := regexp.MustCompile(`assertion violated \(*(\w+)`).FindStringSubmatch(out)
		if name == nil {
			return f, errors.New("an error that is no assertion")
		}
		f.violated = name[1]
	}
	return f, nil
}

var (
	stepLine  = regexp.MustCompile(`^\s*(\d+):\s+proc\s+\d+ \((\w+):\d+\) (\S+:\d+)`)
	valueLine = regexp.MustCompile(`^\s+(\w+(?:\[\d\])?) = (\d+)$`)
	scratch   = regexp.MustCompile(`^(said|luck|before|other|count|best|seen|P\d_\w+)`)
)

// trace shortens spin's account of a run to one line for each step: who, where
// in the model, and what is different after it.
func trace(account string) string {
	var b strings.Builder
	values := map[string]string{}
	step, changes := "", []string(nil)
	flush := func() {
		if len(changes) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", step, strings.Join(changes, ", "))
		}
		changes = nil
	}
	for line := range strings.Lines(account) {
		line = strings.TrimRight(line, "\n")
		if m := stepLine.FindStringSubmatch(line); m != nil {
			if name := m[1] + " " + m[2]; !strings.HasPrefix(step, name+" ") {
				flush()
				step = name + " " + m[3]
			}
			continue
		}
		if strings.HasPrefix(line, "#processes") {
			break // the final state, which the steps have told
		}
		m := valueLine.FindStringSubmatch(line)
		if m == nil || scratch.MatchString(m[1]) || values[m[1]] == m[2] {
			continue
		}
		values[m[1]] = m[2]
		changes = append(changes, m[1]+"="+m[2])
	}
	flush()
	return b.String()
}
