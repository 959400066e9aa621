// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fenceline/fenceline/test/must"
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

func parseSuite(args []string) suite {
	var s suite
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	flags.StringVar(&s.tag, "tag", "", "build tag of the suite's tests")
	flags.StringVar(&s.with, "with", "", "second build tag; it selects no tests")
	flags.StringVar(&s.only, "only", "", "regular expression: tests of the tag whose package.Name matches")
	flags.BoolVar(&s.show, "show", false, "print the output of passing tests too")
	flags.StringVar(&s.figures.file, "figures", "", "file of the recorded figures, with which those of the benchmarks are compared")
	flags.BoolVar(&s.figures.record, "record", false, "write the file of the recorded figures")
	must.OK(flags.Parse(args))
	must.That(flags.NArg() != 0, "the name of the suite is missing")
	s.name, s.args = flags.Arg(0), flags.Args()[1:]
	s.figures.brief = slices.Contains(s.args, "-short")
	must.That(!s.figures.brief || !s.figures.record, "the figures of small benchmarks are not recorded: remove -short or -record")
	return s
}

// arguments returns what follows `go test`.
func (s suite) arguments() []string {
	if s.tag == "" {
		return append([]string{"-json"}, s.args...)
	}
	only, err := regexp.Compile(s.only)
	must.Done(err, "select tests")
	packages, names, err := tagged(".", s.tag, s.with, only)
	must.OK(err)
	must.That(len(names) != 0, "no test has the tag %s", s.tag)
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
	return append(append(args, s.args...), packages...)
}

func (s suite) run(out io.Writer, ledger ledger) (err error) {
	defer must.CatchIn(&err, "run suite %s", s.name)
	args := s.arguments()
	started := time.Now()
	cmd := exec.Command("go", append([]string{"test"}, args...)...)
	cmd.Stderr = out
	stream := must.Value(cmd.StdoutPipe())
	must.OK(cmd.Start())
	counts, err := tally(stream, out, s.show, s.figures.note)
	must.Done(err, "read the results")
	// After a build failure or a crash there may be no failed test.
	if err := cmd.Wait(); err != nil && counts.Failed == 0 {
		fmt.Fprintf(out, "go test: %v\n", err)
		counts.Failed++
	}
	if counts.Passed+counts.Failed == 0 {
		fmt.Fprintln(out, "the suite has no test")
		counts.Failed++
	}
	must.OK(s.figures.close(out, &counts))
	must.OK(ledger.record(s.name, counts))
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
