// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceline/fenceline/test/check"
)

// lost are the ways in which somebody removes files of a journal.
var lost = map[string]func(dir string) error{
	"the directory is emptied": func(dir string) error {
		files, err := os.ReadDir(dir)
		for _, f := range files {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, f.Name())))
		}
		return err
	},
	"the entries are removed":  func(dir string) error { return os.RemoveAll(filepath.Join(dir, entriesDir)) },
	"one entry is removed":     func(dir string) error { return os.Remove(filepath.Join(dir, entriesDir, "aaa@eth0.json")) },
	"the lock file is removed": func(dir string) error { return os.Remove(filepath.Join(dir, lockFile)) },
}

func TestAJournalThatIsRemovedIsWrittenAgain(t *testing.T) {
	for name, remove := range lost {
		for how, again := range map[string]func(*Journal) error{
			"by a look": func(j *Journal) error {
				_, err := j.Ensure()
				return err
			},
			"by the next entry": func(j *Journal) error { return j.Put(entry("ccc")) },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				dir := t.TempDir()
				j := open(t, dir)
				put(t, j, entry("aaa"))
				put(t, j, entry("bbb"))
				check.OK(t, j.Identity.Put(Identity{Node: "n1", NodeUID: "u", Cluster: "c"}))
				check.OK(t, j.Rotations.Put(map[string]netip.Addr{"a": netip.MustParseAddr("10.0.0.5")}))
				check.OK(t, j.Pairs.Put([]Pair{{Pool: "a", Parent: "ens1"}}))
				check.OK(t, remove(dir))
				check.OK(t, again(j))
				check.Value(j.Ensure())(t) // the next entry does not notice the loss of another one
				_, err := Open(dir)
				check.That(t, errors.Is(err, ErrLocked), "another agent opens it with %v", err)
				want, identity, rotations, pairs := j.All(), j.Identity.value, j.Rotations.value, j.Pairs.value
				check.Must(t, len(want) >= 2, "the journal has %d entries", len(want))
				j = reopen(t, j, dir)
				check.SameBy(t, cmp.Options{compareAddr}, j.All(), want, "entries")
				if j.Identity.value != identity || cmp.Diff(rotations, j.Rotations.value, compareAddr) != "" || cmp.Diff(pairs, j.Pairs.value) != "" {
					t.Errorf("identity %v, rotations %v, pairs %v", j.Identity.value, j.Rotations.value, j.Pairs.value)
				}
			})
		}
	}
}

func TestALookAtAWholeJournalChangesNothing(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	put(t, j, entry("aaa"))
	check.OK(t, j.Identity.Put(Identity{Node: "n1"}))
	restored, err := j.Ensure()
	check.That(t, restored == 0 && err == nil, "restored %d, %v", restored, err)
	files, err := os.ReadDir(filepath.Join(dir, entriesDir))
	check.That(t, err == nil && len(files) == 1, "files %v, %v", files, err)
}

func TestAJournalWhoseDirectoryWasTakenAwayCannotBeKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	check.OK(t, os.Mkdir(dir, 0o700))
	held := check.Value(os.Open(dir))(t) // as a mount in a container holds it
	defer held.Close()
	j := open(t, dir)
	j.dir = fmt.Sprintf("/proc/self/fd/%d", held.Fd())
	check.OK(t, os.RemoveAll(dir))
	_, err := j.Ensure()
	check.That(t, errors.Is(err, ErrDirectoryRemoved), "got %v, want %v", err, ErrDirectoryRemoved)
}
