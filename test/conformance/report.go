// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Outcome is how one case ended.
type Outcome struct {
	Case string
	// State is Ginkgo's word: passed, failed, skipped, pending, timedout, panicked, interrupted or
	// aborted.
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
