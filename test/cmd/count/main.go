// SPDX-License-Identifier: Apache-2.0

// Count runs a test suite and closes with its counts.
//
//	count run [-tag TAG [-with TAG] [-only EXPR]] [-show] [-figures FILE [-record]] SUITE ARGUMENTS...
//	                                                                          run `go test -json`, close with "SUITE: N passed, N failed"
//	count fuzz [-time TIME] [-guided] [-run NAME]                  run every fuzz target, close with "fuzz: N passed, N failed"
//	count total SUITE...                                          add up the suites, close with "N passed, N failed"
//	count reset                                                   remove the counts of earlier suites
//
// With a tag, the suite is every test that is built only with that tag; -with sets a second tag for
// tests that need both. Without a tag, the arguments name the packages. The output of tests that
// fail is printed; -show prints all output. With -figures, the suite ends with a table of the figures
// that its benchmarks reported, beside those in the file; -record writes the file.
//
// Only tests without subtests count, so a table counts as its rows. A skipped test counts as failed:
// a suite that silently tests less than its name promises is worse than a red one. For the total, a
// suite that has no counts counts as failed too. The counts of each suite are a file in the
// directory $COUNT_DIR; without that variable they are not kept.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fenceline/fenceline/test/must"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if errors.Is(err, errFailed) {
		os.Exit(1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		os.Exit(2)
	}
}

// errFailed reports that a test has failed. The counts have been printed by then.
var errFailed = errors.New("tests have failed")

func run(args []string, out io.Writer) (err error) {
	defer must.Catch(&err)
	ledger := ledger{dir: os.Getenv("COUNT_DIR")}
	must.That(len(args) != 0, "a verb is missing: run, fuzz, total or reset")
	switch args[0] {
	case "run":
		s := parseSuite(args[1:])
		return s.run(out, ledger)
	case "fuzz":
		return parseFuzzing(args[1:]).execute(out, ledger)
	case "total":
		total := must.Value(ledger.total(out, args[1:]))
		fmt.Fprintln(out, total)
		return total.verdict()
	case "reset":
		return ledger.reset()
	default:
		return fmt.Errorf("no verb %q", args[0])
	}
}
