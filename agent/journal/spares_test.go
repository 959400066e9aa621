package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// files returns how many files the directory of the entries holds, and how many of them have no name.
func files(t *testing.T, dir string) (all, unnamed int) {
	t.Helper()
	count := func(pattern string) int {
		found, err := filepath.Glob(filepath.Join(dir, entriesDir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	return count("*"), count(unnamedPattern)
}

func wantFiles(t *testing.T, dir, when string, all, unnamed int) {
	t.Helper()
	if gotAll, gotUnnamed := files(t, dir); gotAll != all || gotUnnamed != unnamed {
		t.Errorf("%s: %d files, of them %d without a name; want %d and %d", when, gotAll, gotUnnamed, all, unnamed)
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
		wantFiles(t, dir, "one more entry", max(sparesMade, n+1), sparesMade)
	}
	put(t, j, entry("c0")) // is added to the same file
	wantFiles(t, dir, "an entry again", sparesMade+1, sparesMade)
	if err := j.Remove("c1", "eth0"); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, "an entry less", sparesMade, sparesMade-1)
	if err := j.Prepare(); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir, "prepared again", 2*sparesMade, sparesMade)
	put(t, j, entry("c2")) // has its name by now
	wantFiles(t, dir, "an entry again", 2*sparesMade, sparesMade)
	j = reopen(t, j, dir)
	wantFiles(t, dir, "opened again", sparesMade, 0)
	if got := len(j.All()); got != sparesMade || len(j.Corrupt()) > 0 {
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
	if err := os.WriteFile(filepath.Join(dir, entriesDir, ".entry-9.new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir)
	wantFiles(t, dir, "opened again", 0, 0)
	j.Close()
}
