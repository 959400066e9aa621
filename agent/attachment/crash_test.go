// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// written returns the bytes of the file of an entry.
func written(t *testing.T, e any) []byte {
	t.Helper()
	return check.Value(encode(e))(t)
}

// disk makes an agent's directory that holds one old entry, and one more file.
func disk(t *testing.T, file string, data []byte) string {
	t.Helper()
	dir := t.TempDir()
	check.OK(t, os.Mkdir(filepath.Join(dir, entriesDir), 0o700))
	for name, data := range map[string][]byte{"old@eth0.json": written(t, entry("old")), file: data} {
		check.OK(t, os.WriteFile(filepath.Join(dir, entriesDir, name), data, 0o600))
	}
	return dir
}

func TestAWriteCutShortAnywhereIsIgnored(t *testing.T) {
	data := written(t, entry("old"))
	for n := range len(data) + 1 {
		dir := disk(t, ".write-123", data[:n])
		j := open(t, dir)
		got := j.All()
		check.Must(t, len(got) == 1 && len(j.Corrupt()) == 0, "cut at byte %d: entries %v, corrupt %v", n, got, j.Corrupt())
		_, err := os.Stat(filepath.Join(dir, entriesDir, ".write-123"))
		check.Must(t, errors.Is(err, os.ErrNotExist), "cut at byte %d: the unfinished file was not swept: %v", n, err)
		j.Close()
	}
}

func TestAnEntryCutShortAnywhereIsSetAside(t *testing.T) {
	data := written(t, entry("new"))
	for n := range len(data) {
		j := open(t, disk(t, "new@eth0.json", data[:n]))
		wantSetAside(t, j, "new@eth0.json", fmt.Sprintf("cut at byte %d", n), data[:n])
	}
}

func TestAValueThatIsCorruptIsSetAside(t *testing.T) {
	data := written(t, entry("new"))
	data[len(data)-20] ^= 1
	wantSetAside(t, open(t, disk(t, "new@eth0.json", data)), "new@eth0.json", "flipped", data)
}

func TestAFlippedBitIsNeverReadAsAnotherEntry(t *testing.T) {
	data := written(t, entry("new"))
	for n := range 8 * len(data) {
		flipped := append([]byte(nil), data...)
		flipped[n/8] ^= 1 << (n % 8)
		var e Entry
		// Case does not matter in the names of JSON fields: the same value is no error.
		if err := decode(flipped, &e); err == nil && string(written(t, e)) != string(data) {
			t.Fatalf("flipped bit %d of byte %d: another value was read: %+v", n%8, n/8, e)
		}
	}
}

func TestAnEntryUnderAnotherNameIsSetAside(t *testing.T) {
	data := written(t, entry("new"))
	wantSetAside(t, open(t, disk(t, "other@eth0.json", data)), "other@eth0.json", "renamed", data)
}

// wantSetAside checks that the old entry is there, and the corrupt file kept and named.
func wantSetAside(t *testing.T, j *Table, file, what string, data []byte) {
	t.Helper()
	defer j.Close()
	got := j.All()
	check.Must(t, len(got) == 1 && got[0].ContainerID == "old", "%s: entries %v, want the old one", what, got)
	check.Must(t, len(j.Corrupt()) == 1, "%s: corrupt files %v, want one", what, j.Corrupt())
	e := j.Corrupt()[0]
	check.Must(t, filepath.Base(e.File) == file && strings.Contains(e.Error(), e.File) && strings.Contains(e.Error(), e.Kept),
		"%s: the error does not name the files: %v", what, e)
	kept, err := os.ReadFile(e.Kept)
	check.Must(t, err == nil && string(kept) == string(data), "%s: the file was not kept as it was: %v", what, err)
}

func TestASecondCorruptFileDoesNotReplaceTheFirst(t *testing.T) {
	dir := disk(t, "new@eth0.json", []byte("first"))
	open(t, dir).Close()
	path := filepath.Join(dir, entriesDir, "new@eth0.json")
	check.OK(t, os.WriteFile(path, []byte("second"), 0o600))
	open(t, dir).Close()
	for name, want := range map[string]string{path + ".corrupt": "first", path + ".corrupt-2": "second"} {
		got, err := os.ReadFile(name)
		check.That(t, err == nil && string(got) == want, "%s holds %q, %v; want %q", name, got, err, want)
	}
}

func TestCorruptRotationsBeginAnew(t *testing.T) {
	dir := t.TempDir()
	check.OK(t, os.WriteFile(filepath.Join(dir, rotationsFile), []byte("{"), 0o600))
	j := open(t, dir)
	last, known := j.Rotations.Get()
	check.That(t, !known && len(j.Corrupt()) == 1, "rotations %v, corrupt %v", last, j.Corrupt())
}

func TestACorruptIdentityIsForgotten(t *testing.T) {
	dir := t.TempDir()
	check.OK(t, open(t, dir).Close())
	data := []byte(`{"crc32c":1,"value":{"node":"n1","nodeUID":"u","cluster":"c"}}` + "\n")
	check.OK(t, os.WriteFile(filepath.Join(dir, identityFile), data, 0o600))
	j := open(t, dir)
	id, known := j.Identity.Get()
	check.That(t, !known && len(j.Corrupt()) == 1, "identity %+v, corrupt %v", id, j.Corrupt())
}

func TestAnUnreadableDirectoryIsAnErrorAndNoCorruption(t *testing.T) {
	dir := t.TempDir()
	check.OK(t, os.MkdirAll(filepath.Join(dir, entriesDir, "aaa@eth0.json"), 0o700))
	if j, err := Open(dir); err == nil {
		j.Close()
		t.Fatal("a directory in place of a file was read")
	}
}

// killedDir is set in the process that TestWhatPutReturnedFromSurvivesAKill kills.
const killedDir = "FENCELINE_JOURNAL_KILLED_DIR"

func TestWhatPutReturnedFromSurvivesAKill(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		writeUntilKilled(t, dir)
	}
	for round := range 5 {
		dir := t.TempDir()
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		child.Env = append(os.Environ(), killedDir+"="+dir)
		out := check.Value(child.StdoutPipe())(t)
		check.OK(t, child.Start())
		acknowledged := map[string]string{}
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			verb, id, _ := strings.Cut(lines.Text(), " ")
			acknowledged[id] = verb
			if len(acknowledged) == 20+7*round {
				check.OK(t, child.Process.Kill())
			}
		}
		_ = child.Wait() // killed

		j := open(t, dir) // the lock went with the process
		check.None(t, j.Corrupt(), "corrupt:")
		last := len(acknowledged) - 1
		for id, verb := range acknowledged {
			// The verb after the last acknowledged one may have taken effect.
			if id == fmt.Sprintf("c%d", last) {
				continue
			}
			// All others were put and bound, and every third was removed.
			e, ok := j.Get(id, "eth0")
			if want := verb == "bound"; ok != want || ok && e.Phase != Bound {
				t.Errorf("round %d: entry %s there: %v in phase %q, acknowledged: %s", round, id, ok, e.Phase, verb)
			}
		}
		j.Close()
	}
}

// writeUntilKilled reports each write once it has returned.
func writeUntilKilled(t *testing.T, dir string) {
	j := open(t, dir)
	for n := 0; ; n++ {
		id := fmt.Sprintf("c%d", n)
		e := entry(id)
		e.Phase = Intent
		put(t, j, e)
		fmt.Println("put", id)
		put(t, j, entry(id))
		fmt.Println("bound", id)
		if n%3 == 0 {
			check.OK(t, j.Remove(id, "eth0"))
			fmt.Println("removed", id)
		}
	}
}
