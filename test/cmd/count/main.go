// Count runs a test suite and closes with its counts.
//
//	count run [-tag TAG [-with TAG]] [-show] SUITE ARGUMENTS...   run `go test -json`, close with "SUITE: N passed, N failed"
//	count total                                                   add up the suites that were run, close with "N passed, N failed"
//	count reset                                                   forget earlier suites
//
// With a tag, the suite is every test that is built only with it; -with sets
// another tag for tests that need both. Without a tag, the arguments name the
// packages. The output of what failed is printed, with -show that of everything.
//
// Only tests without subtests are counted, so that a table counts as its rows.
// A skipped test counts as failed: a suite that silently tests less than it says
// is worse than a red one. Counts are kept in the directory $COUNT_DIR, if it is
// set, for the total.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
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

// errFailed says that the counts tell of a failure; they have been printed.
var errFailed = errors.New("tests have failed")

func run(args []string, out io.Writer) error {
	ledger := ledger{dir: os.Getenv("COUNT_DIR")}
	if len(args) == 0 {
		return errors.New("a verb is missing: run, total or reset")
	}
	switch args[0] {
	case "run":
		s, err := parseSuite(args[1:])
		if err != nil {
			return err
		}
		return s.run(out, ledger)
	case "total":
		total, err := ledger.total()
		if err != nil {
			return err
		}
		fmt.Fprintln(out, total)
		return total.verdict()
	case "reset":
		return ledger.reset()
	default:
		return fmt.Errorf("no verb %q", args[0])
	}
}
