// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fenceline/fenceline/test/check"
)

var compareAddr = cmpopts.EquateComparable(netip.Addr{})

// entry returns an entry with every field set.
func entry(containerID string) Entry {
	return Entry{
		ContainerID: containerID, Interface: "eth0", NetNS: "/run/netns/a",
		PodNamespace: "ns", PodName: "web-0", PodUID: "uid-1",
		Phase: Bound, Session: "node/boot", Slot: 7, Parent: "ens1", ParentIndex: 3, MAC: "02:00:00:00:00:01",
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Addresses: []Address{
			{Addr: netip.MustParseAddr("10.0.0.5"), Pool: "a", LeaseName: "10.0.0.5", LeaseUID: "u", Token: 1 << 60, Static: true},
			{Addr: netip.MustParseAddr("fd00::5"), Pool: "b", Network: "red", LeaseName: "red.fd00"},
		},
	}
}

func open(t *testing.T, dir string) *Table {
	t.Helper()
	j := check.Value(Open(dir))(t)
	t.Cleanup(func() { j.Close() })
	return j
}

func reopen(t *testing.T, j *Table, dir string) *Table {
	t.Helper()
	check.OK(t, j.Close())
	return open(t, dir)
}

func put(t *testing.T, j *Table, entries ...Entry) {
	t.Helper()
	for _, e := range entries {
		check.OK(t, j.Put(e))
	}
}

func TestEntriesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	first, second := entry("aaa"), entry("bbb")
	second.Created = first.Created.Add(-time.Second)
	put(t, j, first, second)
	first.Phase = Releasing
	put(t, j, first, entry("ccc"))
	for range 2 {
		check.OK(t, j.Remove("ccc", "eth0"))
	}

	j = reopen(t, j, dir)
	check.SameBy(t, cmp.Options{compareAddr}, j.All(), []*Entry{&second, &first}, "entries, oldest first")
	_, ok := j.Get("ccc", "eth0")
	check.That(t, !ok, "a removed entry came back")
}

func TestAllIsOfOneMoment(t *testing.T) {
	j := open(t, t.TempDir())
	first, changed, second := entry("aaa"), entry("aaa"), entry("bbb")
	changed.Phase = Releasing
	put(t, j, first)
	before := j.All()
	put(t, j, changed, second)
	after := j.All()
	check.OK(t, j.Remove("aaa", "eth0"))
	check.SameBy(t, cmp.Options{compareAddr}, before, []*Entry{&first}, "before the changes")
	check.SameBy(t, cmp.Options{compareAddr}, after, []*Entry{&changed, &second}, "before the removal")
	check.SameBy(t, cmp.Options{compareAddr}, j.All(), []*Entry{&second}, "in the end")
}

func TestThePodOfEntries(t *testing.T) {
	j := open(t, t.TempDir())
	second, first, other := entry("aaa"), entry("bbb"), entry("ccc")
	first.Created = second.Created.Add(-time.Second)
	other.PodUID = "another"
	put(t, j, second, first, other)
	check.SameBy(t, cmp.Options{compareAddr}, j.OfPod(first.PodUID), []*Entry{&first, &second}, "oldest first")
	check.OK(t, j.Remove("aaa", "eth0"))
	got := j.OfPod(first.PodUID)
	check.That(t, len(got) == 1 && got[0].ContainerID == "bbb", "after the removal: %v", got)
}

func TestRotationsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	got, known := j.Rotations.Get()
	check.Must(t, !known, "rotations of a new journal: %v", got)
	want := map[string]netip.Addr{"a": netip.MustParseAddr("10.0.0.5"), "b": netip.MustParseAddr("fd00::7")}
	check.OK(t, j.Rotations.Put(want))
	j = reopen(t, j, dir)
	got, _ = j.Rotations.Get()
	check.SameBy(t, cmp.Options{compareAddr}, got, want, "the value")
}

func TestTheIdentitySurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	id, known := j.Identity.Get()
	check.Must(t, !known, "the identity of a new journal: %+v", id)
	for _, uid := range []string{"older", "newer"} {
		check.OK(t, j.Identity.Put(Identity{Node: "n1", NodeUID: uid, Cluster: "c"}))
	}
	want := Identity{Node: "n1", NodeUID: "newer", Cluster: "c"}
	for range 2 {
		id, known := j.Identity.Get()
		check.That(t, known && id == want, "identity %+v, known %v", id, known)
		j = reopen(t, j, dir)
	}
}

func TestOneAgentAtATime(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	_, err := Open(dir)
	check.Must(t, errors.Is(err, ErrLocked), "second open: %v, want ErrLocked", err)
	reopen(t, j, dir)
}

func TestNamesThatLeaveTheDirectoryAreRefused(t *testing.T) {
	j := open(t, t.TempDir())
	for _, name := range []string{"", "..", "../a", "a/b", "a@b", "a\x00", ".write-1"} {
		check.That(t, j.Put(entry(name)) != nil, "container ID %q was accepted", name)
		check.That(t, j.Remove(name, "eth0") != nil, "container ID %q was accepted for removal", name)
	}
	for _, name := range []string{"", "a/b", ".."} {
		e := entry("aaa")
		e.Interface = name
		check.That(t, j.Put(e) != nil, "interface %q was accepted", name)
	}
}

func TestAChangedArgumentDoesNotChangeTheJournal(t *testing.T) {
	j := open(t, t.TempDir())
	e := entry("aaa")
	put(t, j, e)
	e.Addresses[0].Token = 0
	got, _ := j.Get("aaa", "eth0")
	check.That(t, got.Addresses[0].Token == 1<<60, "the entry shares its addresses with the caller")
}

func TestConcurrentUse(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for n := range 10 {
				// Odd workers share their entries with the worker before them.
				e := entry(fmt.Sprintf("c%d-%d", worker/2, n))
				e.Slot = uint32(worker)
				check.Is(t, j.Put(e), nil, "got")
				if n%3 == 0 {
					check.Is(t, j.Remove(e.ContainerID, e.Interface), nil, "got")
				}
				j.All()
				check.Is(t, j.Rotations.Put(map[string]netip.Addr{"a": netip.IPv4Unspecified()}), nil, "got")
			}
		})
	}
	wg.Wait()
	before := j.All()
	j = reopen(t, j, dir)
	check.SameBy(t, cmp.Options{compareAddr}, j.All(), before, "disk and memory differ (-memory +disk)")
	left, _ := filepath.Glob(filepath.Join(dir, "*", tempPattern))
	check.That(t, len(left) == 0, "temporary files are left: %v", left)
}

func TestAFailedWriteLeavesTheOldEntry(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	put(t, j, entry("aaa"))
	path := filepath.Join(dir, entriesDir, "bbb@eth0.json")
	check.OK(t, os.MkdirAll(filepath.Join(path, "in the way"), 0o700))
	check.Must(t, j.Put(entry("bbb")) != nil, "a write over a directory succeeded")
	got := j.All()
	check.That(t, len(got) == 1 && got[0].ContainerID == "aaa", "entries after the failed write: %v", got)
	left, _ := filepath.Glob(filepath.Join(dir, "*", tempPattern))
	check.That(t, len(left) == 0, "temporary files are left: %v", left)
}

// An agent that is rolled back reads what a later one has written.
func TestAnEntryWithFieldsOfALaterAgentIsRead(t *testing.T) {
	raw := check.Value(json.Marshal(entry("new")))(t)
	raw = append(raw[:len(raw)-1], `,"laterRouting":{"hostLink":true,"listed":["10.0.0.0/8"]}}`...)
	j := open(t, disk(t, "new@eth0.json", written(t, json.RawMessage(raw))))
	defer j.Close()
	e, _ := j.Get("new", "eth0")
	check.SameBy(t, cmp.Options{compareAddr}, e, entry("new"), "entry")
	check.None(t, j.Corrupt(), "corrupt")
}

// laterAfterStep is what a clock shows d after t that was set back by an hour in between.
func laterAfterStep(t time.Time, d time.Duration) time.Time {
	t = t.Add(-time.Hour)
	// As package time keeps the wall clock, and the monotonic one that no step changes.
	(*struct {
		wall      uint64
		monotonic int64
		loc       *time.Location
	})(unsafe.Pointer(&t)).monotonic += int64(time.Hour + d)
	return t
}

// By the one clock or the other each of the three sorts comes after another one, in a circle.
func TestEntriesAreFoundAgainAfterTheClockWasSetBack(t *testing.T) {
	j := open(t, t.TempDir())
	now := time.Now()
	created := func(id string, at time.Time) Entry {
		e := entry(id)
		e.Created = at
		return e
	}
	put(t, j, created("before", now.Add(-30*time.Minute).Round(0)), created("wrong", now))
	for i := range 4 {
		put(t, j, created(fmt.Sprint("today-", i), laterAfterStep(now, time.Duration(i+1)*time.Second)))
	}
	all := slices.Clone(j.All())
	for _, e := range all {
		again := *e
		again.Phase = Releasing
		put(t, j, again)
	}
	check.Equal(t, len(j.All()), len(all), "entries:")
	for _, e := range all {
		check.OK(t, j.Remove(e.ContainerID, e.Interface))
	}
	check.None(t, j.All(), "left")
}

// onFullDisk names the directory to a process whose files cannot grow.
const onFullDisk = "FENCELINE_TEST_FULL_DISK"

// Pods come and go while the disk is full: they free it.
func TestAJournalOpensOnAFullDiskAndLosesNothing(t *testing.T) {
	before, after := entry("new"), entry("new")
	after.Phase = Releasing
	if dir := os.Getenv(onFullDisk); dir != "" {
		useFullDisk(t, dir, before, after)
		return
	}
	dir := disk(t, "new@eth0.json", written(t, before))
	// A process of its own: the limit would apply to the files of the other tests as well.
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), onFullDisk+"="+dir)
	out, err := child.CombinedOutput()
	check.Must(t, err == nil, "%v\n%s", err, out)
	j := open(t, dir)
	got := j.All()
	check.That(t, len(got) == 1 && got[0].ContainerID == "new" && got[0].Phase == before.Phase, "entries after a full disk: %v", got)
	put(t, j, after)
	e, ok := reopen(t, j, dir).Get("new", "eth0")
	check.That(t, ok && e.Phase == after.Phase, "%v %s", ok, e.Phase)
}

func useFullDisk(t *testing.T, dir string, before, after Entry) {
	signal.Ignore(syscall.SIGXFSZ)
	check.OK(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{}))
	j := open(t, dir)
	for _, e := range []Entry{after, entry("another")} {
		err := j.Put(e)
		check.That(t, errors.Is(err, syscall.EFBIG) && strings.Contains(err.Error(), e.ContainerID),
			"Put on a full disk: %v, want an error that names the container", err)
	}
	e, ok := j.Get("new", "eth0")
	check.That(t, ok && e.Phase == before.Phase, "%v %s", ok, e.Phase)
	left, _ := filepath.Glob(filepath.Join(dir, entriesDir, tempPattern))
	check.That(t, len(left) == 0, "temporary files are left: %v", left)
	// To remove an entry takes no space.
	check.Is(t, j.Remove("old", "eth0"), nil, "got")
}

func TestPairsOutliveTheAgent(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	got, known := j.Pairs.Get()
	check.Must(t, !known, "a new journal holds pairs %v", got)
	want := []Pair{
		{Pool: "v4", Parent: "eth1", Used: time.Unix(1000, 0).UTC()},
		{Pool: "v6", Parent: "eth1.100", Used: time.Unix(2000, 0).UTC(), Before: time.Unix(1500, 0).UTC()},
	}
	check.OK(t, j.Pairs.Put(want))
	j = reopen(t, j, dir)
	got, _ = j.Pairs.Get()
	check.Same(t, got, want, "pairs")
}

func TestPairsThatCannotBeReadAreLearntAnew(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	check.OK(t, j.Pairs.Put([]Pair{{Pool: "v4", Parent: "eth1"}}))
	check.OK(t, os.WriteFile(filepath.Join(dir, pairsFile), []byte("{}"), 0o600))
	j = reopen(t, j, dir)
	pairs, known := j.Pairs.Get()
	check.That(t, !known && len(j.Corrupt()) == 1, "pairs %v, corrupt files %v", pairs, j.Corrupt())
}

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
		for how, again := range map[string]func(*Table) error{
			"by a look":         func(j *Table) error { return check.Err(j.Ensure()) },
			"by the next entry": func(j *Table) error { return j.Put(entry("ccc")) },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				dir := t.TempDir()
				j := open(t, dir)
				put(t, j, entry("aaa"), entry("bbb"))
				check.OK(t, j.Identity.Put(Identity{Node: "n1", NodeUID: "u", Cluster: "c"}))
				check.OK(t, j.Rotations.Put(map[string]netip.Addr{"a": netip.MustParseAddr("10.0.0.5")}))
				check.OK(t, j.Pairs.Put([]Pair{{Pool: "a", Parent: "ens1"}}))
				check.OK(t, remove(dir))
				check.OK(t, again(j))
				check.Value(j.Ensure())(t) // the next entry does not notice the loss of another one
				check.Is(t, check.Err(Open(dir)), ErrLocked, "another agent opens it with:")
				want, identity, rotations, pairs := j.All(), j.Identity.value, j.Rotations.value, j.Pairs.value
				check.Must(t, len(want) >= 2, "the journal has %d entries", len(want))
				j = reopen(t, j, dir)
				check.SameBy(t, cmp.Options{compareAddr}, j.All(), want, "entries")
				check.Equal(t, j.Identity.value, identity, "identity")
				check.SameBy(t, cmp.Options{compareAddr}, j.Rotations.value, rotations, "rotations")
				check.Same(t, j.Pairs.value, pairs, "pairs")
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

// FuzzFile: an entry that is read says the same when it is written again. A file in which one bit has
// changed is corrupt, or holds the same entry.
func FuzzFile(f *testing.F) {
	for _, e := range []Entry{
		{},
		{ContainerID: "c1", Interface: "eth0", Phase: Bound, Slot: 7, Created: time.Unix(1700000000, 0).UTC()},
		{ContainerID: "c2", Interface: "net1", Phase: Releasing, Addresses: []Address{{Pool: "a", LeaseName: "192.0.2.7", Token: 3}}},
	} {
		data := check.Value(encode(e))(f)
		f.Add(data, uint(len(data)/2))
		f.Add(append(data, data[:10]...), uint(3))
	}
	f.Add([]byte(`{"crc32c":0,"value":null}`+"\n"), uint(90))
	f.Fuzz(func(t *testing.T, data []byte, bit uint) {
		var e Entry
		if decode(data, &e) != nil {
			return
		}
		written := reencoded(t, e)
		var again Entry
		err := decode(written, &again)
		check.That(t, err == nil && bytes.Equal(reencoded(t, again), written), "%s is read as %+v, %v", written, again, err)
		flipped := bytes.Clone(data)
		flipped[bit/8%uint(len(data))] ^= 1 << (bit % 8)
		var other Entry
		check.That(t, decode(flipped, &other) != nil || bytes.Equal(reencoded(t, other), written),
			"%q is read as %+v, and %q as %+v", data, e, flipped, other)
	})
}

func reencoded(t *testing.T, e Entry) []byte {
	t.Helper()
	return check.Value(encode(e))(t)
}
