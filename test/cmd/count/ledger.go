package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ledger keeps the counts of each suite in a file, for the total.
type ledger struct{ dir string }

func (l ledger) record(suite string, c counts) error {
	if l.dir == "" {
		return nil
	}
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return fmt.Errorf("record the counts of %s: %w", suite, err)
	}
	if err := os.WriteFile(filepath.Join(l.dir, suite+".json"), data, 0o644); err != nil {
		return fmt.Errorf("record the counts of %s: %w", suite, err)
	}
	return nil
}

func (l ledger) total() (counts, error) {
	files, err := filepath.Glob(filepath.Join(l.dir, "*.json"))
	if err != nil || l.dir == "" || len(files) == 0 {
		return counts{}, errors.New("add up the suites: none was recorded in $COUNT_DIR")
	}
	var sum counts
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return sum, fmt.Errorf("add up the suites: %w", err)
		}
		var c counts
		if err := json.Unmarshal(data, &c); err != nil {
			return sum, fmt.Errorf("add up the suites: %s: %w", file, err)
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
			return fmt.Errorf("forget earlier suites: %w", err)
		}
	}
	return nil
}
