// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/must"
)

// tagged finds the tests and benchmarks below dir that are built only with the tag, so that a suite does not repeat
// the tests of another one. The tag `with`, if any, is set in either case. Of these it takes the tests whose
// "package.Name" matches only. It returns the packages as arguments of go test, and the names of the tests.
func tagged(dir, tag, with string, only *regexp.Regexp) (packages, names []string, err error) {
	defer must.Catch(&err)
	without := testFiles(dir, with)
	for file, pkg := range testFiles(dir, strings.Trim(tag+","+with, ",")) {
		if _, ok := without[file]; ok {
			continue
		}
		found := testsIn(file, "Test", "Benchmark")
		found = slices.DeleteFunc(found, func(name string) bool { return !only.MatchString(pkg + "." + name) })
		if len(found) > 0 {
			packages = append(packages, pkg)
			names = append(names, found...)
		}
	}
	slices.Sort(packages)
	slices.Sort(names)
	return slices.Compact(packages), slices.Compact(names), nil
}

// testFiles returns the test files below dir that are built with the tags, each with its package.
func testFiles(dir, tags string) map[string]string {
	cmd := exec.Command("go", "list", "-tags", tags, "-json=Dir,ImportPath,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	must.Done(err, "list the tests with tags %q", tags)
	files := map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Dir, ImportPath           string
			TestGoFiles, XTestGoFiles []string
		}
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return files
		}
		must.Done(err, "list the tests with tags %q", tags)
		for _, name := range append(p.TestGoFiles, p.XTestGoFiles...) {
			files[filepath.Join(p.Dir, name)] = p.ImportPath
		}
	}
}

// testsIn returns the names of the functions of a file that begin with one of the prefixes, such as "Test".
func testsIn(path string, prefixes ...string) (names []string) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	must.Done(err, "find the tests of %s", path)
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv != nil || f.Name.Name == "TestMain" {
			continue
		}
		name := f.Name.Name
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			names = append(names, name)
		}
	}
	return names
}

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
	reasons []string // of the tests that failed
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

// arguments returns what follows `go test`. It vets nothing: `make check` and `make lint` vet all code
// with all tags.
func (s suite) arguments() []string {
	if s.tag == "" {
		return append([]string{"-json", "-vet=off"}, s.args...)
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
	// One package at a time by default, because some suites measure: go test takes the last -p. Nothing
	// from the cache.
	args := []string{"-json", "-vet=off", "-tags", tags, "-count=1", "-p=1", "-run", pattern}
	if s.figures.file == "" {
		slices.Reverse(packages) // the rigs of test/ take the longest; figures keep their order
	}
	// With benchmarks, go test runs one package at a time, whatever -p says.
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "Benchmark") }) {
		args = append(args, "-bench", pattern, "-benchtime=1x")
	}
	return append(append(args, s.args...), packages...)
}

func (s *suite) run(out io.Writer, ledger ledger) (err error) {
	defer must.CatchIn(&err, "run suite %s", s.name)
	args := s.arguments()
	started := time.Now()
	var counts counts
	if s.figures.file != "" { // a server of an earlier benchmark would have another heap
		counts = s.goTest(out, args)
	} else {
		// The servers, and whatever else outlives its test, become children of this process.
		must.Done(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "adopt the servers of tests")
		if err := controlplane.HandOver(func() { counts = s.goTest(out, args) }); err != nil {
			fmt.Fprintln(out, err)
			counts.Failed++
		}
	}
	if counts.Passed+counts.Failed == 0 {
		fmt.Fprintln(out, "the suite has no test")
		counts.Failed++
	}
	must.OK(s.figures.close(out, &counts))
	must.OK(ledger.record(s.name, counts, s.reasons))
	closing(out, s.name, time.Since(started), children(), counts)
	return counts.verdict()
}

// goTest runs `go test` and counts its results.
func (s *suite) goTest(out io.Writer, args []string) counts {
	cmd := exec.Command("go", append([]string{"test"}, args...)...)
	cmd.Stderr = out
	stream := must.Value(cmd.StdoutPipe())
	must.OK(cmd.Start())
	counts, reasons, err := tally(stream, out, s.show, s.figures.note)
	s.reasons = append(s.reasons, reasons...)
	must.Done(err, "read the results")
	// After a build failure or a crash there may be no failed test.
	if err := cmd.Wait(); err != nil && counts.Failed == 0 {
		fmt.Fprintf(out, "go test: %v\n", err)
		counts.Failed++
	}
	return counts
}

// children waits for the adopted processes that have ended. It returns the CPU time of all processes that
// this one, and its descendants, have waited for.
func children() time.Duration {
	for pid := 1; pid > 0; {
		pid, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil)
	}
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
