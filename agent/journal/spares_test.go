package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// files returns how many files the directory of the entries holds, and how many of them are spare.
func files(t *testing.T, dir string) (all, spare int) {
	t.Helper()
	count := func(pattern string) int {
		found, err := filepath.Glob(filepath.Join(dir, entriesDir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	return count("*"), count(tempPattern)
}

func wantFiles(t *testing.T, dir, when string, all, spare int) {
	t.Helper()
	if gotAll, gotSpare := files(t, dir); gotAll != all || gotSpare != spare {
		t.Errorf("%s: %d files, of them %d spare; want %d and %d", when, gotAll, gotSpare, all, spare)
	}
}

func TestEntriesBeginInFilesThatWereMadeAhead(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	for range 2 {
		if err := j.Prepare(); err != nil {
			t.Fatal(err)
		}
	}
	wantFiles(t, dir, "prepared twice", sparesMade, sparesMade)
	for n := range sparesMade + 1 {
		put(t, j, entry(fmt.Sprintf("c%d", n)))
		wantFiles(t, dir, "one more entry", max(sparesMade, n+1), max(sparesMade-n-1, 0))
	}
	j = reopen(t, j, dir)
	if got := len(j.All()); got != sparesMade+1 || len(j.Corrupt()) > 0 {
		t.Errorf("%d entries, corrupt %v", got, j.Corrupt())
	}
	j.Close()
}

func TestFilesMadeAheadGoWithTheJournalOrItsNextOpening(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if err := j.Prepare(); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, "closed", 0, 0)
	if err := j.Prepare(); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, "prepared after it was closed", 0, 0)

	// Of a process that was killed.
	if err := os.WriteFile(filepath.Join(dir, entriesDir, ".write-9"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir)
	wantFiles(t, dir, "opened again", 0, 0)
	j.Close()
}
