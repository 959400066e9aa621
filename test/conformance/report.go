// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Outcome is how one case ended.
type Outcome struct {
	Case string
	// State is Ginkgo's word: passed, failed, skipped, pending, timedout, panicked, interrupted or aborted.
	State string
	Took  time.Duration
	// Message is the failure, or why the case skipped itself; empty if it passed.
	Message string
}

// readReport reads a report that Ginkgo has written. The outcomes leave out cases that were not
// chosen. The error names what failed outside of the cases.
func readReport(path string) ([]Outcome, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	return parseReport(data)
}

// parseReport parses a report: github.com/onsi/ginkgo/v2/types, type Report.
func parseReport(data []byte) ([]Outcome, error) {
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts    []string
			LeafNodeType, LeafNodeText string
			State                      string
			RunTime                    time.Duration
			Failure                    struct{ Message string }
		}
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("parse the report: %w", err)
	}
	var outcomes []Outcome
	var errs []error
	for _, suite := range suites {
		for _, r := range suite.SpecReports {
			switch {
			case r.State == "skipped" && r.Failure.Message == "": // not chosen
			case r.LeafNodeType == "It":
				name := strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " ")
				outcomes = append(outcomes, Outcome{Case: name, State: r.State, Took: r.RunTime, Message: r.Failure.Message})
			case r.State != "passed":
				errs = append(errs, fmt.Errorf("%s %s: %s", r.LeafNodeType, r.State, r.Failure.Message))
			}
		}
	}
	return outcomes, errors.Join(errs...)
}

// noResult is the state of a case that the report does not name.
const noResult = "no result"

// Table has one row for each case, sorted by name.
type Table []Outcome

// Account returns a row for each of the cases. A case without an outcome has no result.
func Account(cases []string, outcomes []Outcome) Table {
	byCase := map[string]Outcome{}
	for _, o := range outcomes {
		byCase[o.Case] = o
	}
	var table Table
	for _, name := range slices.Sorted(slices.Values(cases)) {
		row, ok := byCase[name]
		if !ok {
			row = Outcome{Case: name, State: noResult, Message: "the run ended before it"}
		}
		table = append(table, row)
	}
	return table
}

// Err returns an error unless every case has passed.
func (t Table) Err() error {
	var errs []error
	for _, row := range t {
		if row.State != "passed" {
			errs = append(errs, fmt.Errorf("%s: %s", row.State, row.Case))
		}
	}
	return errors.Join(errs...)
}

// String is the table in Markdown, with the counts below it.
func (t Table) String() string {
	var out strings.Builder
	out.WriteString("| case | result | seconds |\n|---|---|---|\n")
	passed := 0
	for _, row := range t {
		result := row.State
		if row.State == "passed" {
			passed++
		} else {
			result += ": " + cell(row.Message)
		}
		fmt.Fprintf(&out, "| %s | %s | %.1f |\n", cell(row.Case), result, row.Took.Round(100*time.Millisecond).Seconds())
	}
	fmt.Fprintf(&out, "\n%d cases, %d passed\n", len(t), passed)
	return out.String()
}

// cellLimit is how many characters of a message a row shows.
const cellLimit = 400

// cell makes a text one cell of a table.
func cell(text string) string {
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) > cellLimit {
		line = append(line[:cellLimit], '…')
	}
	return strings.ReplaceAll(string(line), "|", `\|`)
}
