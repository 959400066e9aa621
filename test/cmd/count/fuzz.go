// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/test/must"
)

// fuzzTag is the build tag with which fuzz targets are built. It leaves out none: those of the programs need it.
const fuzzTag = "kernel"

// fuzzing runs every fuzz target below a directory.
type fuzzing struct {
	dir string
	// each is the argument of -test.fuzztime: a duration, or executions such as "1000x".
	each string
	// guided: the binaries measure the coverage of their packages, which leads the search. Such a
	// binary shares no package with those of the other suites.
	guided bool
	// run selects the targets with this text in their names.
	run string
}

// target is one fuzz target.
type target struct{ pkg, dir, name string }

func parseFuzzing(args []string) fuzzing {
	f := fuzzing{dir: "."}
	flags := flag.NewFlagSet("fuzz", flag.ContinueOnError)
	flags.StringVar(&f.each, "time", "5s", "duration or executions (1000x) of each target")
	flags.BoolVar(&f.guided, "guided", false, "measure coverage, which leads the search")
	flags.StringVar(&f.run, "run", "", "run the targets with this text in their names")
	must.OK(flags.Parse(args))
	return f
}

// execute closes with the number of targets that passed and failed. A seed that fails counts as its target.
func (f fuzzing) execute(out io.Writer, ledger ledger) (err error) {
	defer must.Catch(&err)
	const suite = "fuzz"
	started := time.Now()
	targets := f.targets()
	dir, err := os.MkdirTemp("", "fuzz")
	must.Done(err, "build the fuzz targets")
	defer os.RemoveAll(dir)
	binaries := f.build(out, dir, targets)
	fmt.Fprintf(out, "%d fuzz targets in %d packages, built in %s\n", len(targets), len(binaries), time.Since(started).Round(time.Second))
	var sum counts
	for _, t := range targets {
		if f.one(out, dir, binaries[t.pkg], t) {
			sum.Passed++
		} else {
			sum.Failed++
		}
	}
	must.OK(ledger.record(suite, sum, nil))
	closing(out, suite, time.Since(started), children(), sum)
	return sum.verdict()
}

// targets returns the selected fuzz targets by package and name.
func (f fuzzing) targets() []target {
	var all []target
	for file, pkg := range testFiles(f.dir, fuzzTag) {
		for _, name := range testsIn(file, "Fuzz") {
			if strings.Contains(name, f.run) {
				all = append(all, target{pkg, filepath.Dir(file), name})
			}
		}
	}
	must.That(len(all) != 0, "no fuzz target has %q in its name", f.run)
	slices.SortFunc(all, func(a, b target) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name)) })
	return all
}

// build builds the test binary of each package below dir, and returns their paths by package.
func (f fuzzing) build(out io.Writer, dir string, targets []target) map[string]string {
	binaries := map[string]string{}
	for _, t := range targets {
		if binaries[t.pkg] != "" {
			continue
		}
		binaries[t.pkg] = filepath.Join(dir, fmt.Sprintf("%d.test", len(binaries)))
		args := []string{"test", "-tags", fuzzTag, "-c", "-o", binaries[t.pkg]}
		if f.guided {
			args = append(args, "-fuzz", ".")
		}
		cmd := exec.Command("go", append(args, t.pkg)...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = f.dir, out, out
		must.Done(cmd.Run(), "build the fuzz targets of %s", t.pkg)
	}
	return binaries
}

// one runs a target and prints a line about it, or all output if it fails.
func (f fuzzing) one(out io.Writer, built, binary string, t target) bool {
	cmd := exec.Command(binary, "-test.run=^$", "-test.timeout=0", "-test.fuzz=^"+t.name+"$",
		"-test.fuzztime="+f.each, "-test.fuzzcachedir="+filepath.Join(built, "corpus"))
	cmd.Dir = t.dir
	output, err := cmd.CombinedOutput()
	report := lastReport(string(output))
	if err == nil && report == "" {
		err = errors.New("it ended before its first execution; give it more time")
	}
	if err != nil {
		fmt.Fprintf(out, "--- FAIL %s in %s: %v\n%s", t.name, t.pkg, err, output)
		return false
	}
	fmt.Fprintf(out, "ok   %s in %s: %s\n", t.name, t.pkg, report)
	return true
}

// lastReport returns the last line in which the fuzzer tells its executions, or "" if there is none.
func lastReport(output string) string {
	report := ""
	for line := range strings.Lines(output) {
		if strings.Contains(line, "execs: ") {
			report = strings.TrimSpace(strings.TrimPrefix(line, "fuzz: "))
		}
	}
	return report
}
