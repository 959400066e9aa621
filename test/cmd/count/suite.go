// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// suite is one call of go test.
type suite struct {
	name string
	tag  string
	with string // a second tag, which selects no tests
	only string // selects tests whose "package.Name" matches
	show bool
	args []string // of go test
	// figures are those of benchmarks.
	figures figures
}

func parseSuite(args []string) (suite, error) {
	var s suite
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.StringVar(&s.tag, "tag", "", "build tag of the suite's tests")
	flags.StringVar(&s.with, "with", "", "second build tag; it selects no tests")
	flags.StringVar(&s.only, "only", "", "regular expression: tests of the tag whose package.Name matches")
	flags.BoolVar(&s.show, "show", false, "print the output of passing tests too")
	flags.StringVar(&s.figures.file, "figures", "", "file of the recorded figures, with which those of the benchmarks are compared")
	flags.BoolVar(&s.figures.record, "record", false, "write the file of the recorded figures")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() == 0 {
		return s, errors.New("the name of the suite is missing")
	}
	s.name, s.args = flags.Arg(0), flags.Args()[1:]
	s.figures.brief = slices.Contains(s.args, "-short")
	if s.figures.brief && s.figures.record {
		return s, errors.New("the figures of small benchmarks are not recorded: remove -short or -record")
	}
	return s, nil
}

// arguments returns what follows `go test`.
func (s suite) arguments() ([]string, error) {
	if s.tag == "" {
		return append([]string{"-json"}, s.args...), nil
	}
	only, err := regexp.Compile(s.only)
	if err != nil {
		return nil, fmt.Errorf("select tests: %w", err)
	}
	packages, names, err := tagged(".", s.tag, s.with, only)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no test has the tag %s", s.tag)
	}
	pattern := "^(" + strings.Join(names, "|") + ")$"
	tags := s.tag
	if s.with != "" {
		tags += "," + s.with
	}
	// One package at a time: these tests share the machine, and some measure. Nothing from the cache.
	args := []string{"-json", "-tags", tags, "-count=1", "-p=1", "-run", pattern}
	// With benchmarks, go test runs one package at a time, whatever -p says.
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "Benchmark") }) {
		args = append(args, "-bench", pattern, "-benchtime=1x")
	}
	return append(append(args, s.args...), packages...), nil
}

func (s suite) run(out io.Writer, ledger ledger) error {
	args, err := s.arguments()
	if err != nil {
		return fmt.Errorf("run suite %s: %w", s.name, err)
	}
	started := time.Now()
	cmd := exec.Command("go", append([]string{"test"}, args...)...)
	cmd.Stderr = out
	stream, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("run suite %s: %w", s.name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run suite %s: %w", s.name, err)
	}
	counts, err := tally(stream, out, s.show, s.figures.note)
	if err != nil {
		return fmt.Errorf("read the results of suite %s: %w", s.name, err)
	}
	// After a build failure or a crash there may be no failed test.
	if err := cmd.Wait(); err != nil && counts.Failed == 0 {
		fmt.Fprintf(out, "go test: %v\n", err)
		counts.Failed++
	}
	if counts.Passed+counts.Failed == 0 {
		fmt.Fprintln(out, "the suite has no test")
		counts.Failed++
	}
	if err := s.figures.close(out, &counts); err != nil {
		return err
	}
	if err := ledger.record(s.name, counts); err != nil {
		return err
	}
	closing(out, s.name, time.Since(started), children(), counts)
	return counts.verdict()
}

// children returns the CPU time of all processes that this one, and its descendants, have waited for.
func children() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// closing prints the last lines of a suite: its time and its counts.
func closing(out io.Writer, suite string, wall, cpu time.Duration, c counts) {
	fmt.Fprintf(out, "%s took %s, %s of CPU\n%s: %s\n", suite, wall.Round(time.Second), cpu.Round(time.Second), suite, c)
}
