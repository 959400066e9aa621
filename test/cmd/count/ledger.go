// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fenceline/fenceline/test/must"
)

// ledger keeps the counts of each suite in a file below dir, for the total. Without a directory it
// keeps nothing.
type ledger struct{ dir string }

func (l ledger) record(suite string, c counts) (err error) {
	defer must.CatchIn(&err, "record the counts of %s", suite)
	if l.dir == "" {
		return nil
	}
	must.OK(os.MkdirAll(l.dir, 0o755))
	return os.WriteFile(filepath.Join(l.dir, suite+".json"), must.Value(json.Marshal(c)), 0o644)
}

// total adds up the suites. A suite that left no counts did not run to its end, and counts as one
// failed test.
func (l ledger) total(out io.Writer, suites []string) (counts, error) {
	if l.dir == "" || len(suites) == 0 {
		return counts{}, errors.New("add up the suites: set COUNT_DIR and name the suites")
	}
	var sum counts
	for _, suite := range suites {
		data, err := os.ReadFile(filepath.Join(l.dir, suite+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(out, "%s: the suite did not run to its end\n", suite)
			sum.Failed++
			continue
		}
		if err != nil {
			return sum, fmt.Errorf("add up the suites: %w", err)
		}
		var c counts
		if err := json.Unmarshal(data, &c); err != nil {
			return sum, fmt.Errorf("add up the suites: decode the counts of %s: %w", suite, err)
		}
		sum.Passed += c.Passed
		sum.Failed += c.Failed
	}
	return sum, nil
}

func (l ledger) reset() error {
	files, err := filepath.Glob(filepath.Join(l.dir, "*.json"))
	if err != nil || l.dir == "" {
		return err
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the counts of earlier suites: %w", err)
		}
	}
	return nil
}
