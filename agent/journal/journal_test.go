// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

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

func open(t *testing.T, dir string) *Journal {
	t.Helper()
	j, err := Open(dir)
	check.OK(t, err)
	t.Cleanup(func() { j.Close() })
	return j
}

func reopen(t *testing.T, j *Journal, dir string) *Journal {
	t.Helper()
	check.OK(t, j.Close())
	return open(t, dir)
}

func put(t *testing.T, j *Journal, e Entry) {
	t.Helper()
	check.OK(t, j.Put(e))
}

func TestEntriesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	first, second := entry("aaa"), entry("bbb")
	second.Created = first.Created.Add(-time.Second)
	put(t, j, first)
	put(t, j, second)
	first.Phase = Releasing
	put(t, j, first)
	put(t, j, entry("ccc"))
	check.OK(t, j.Remove("ccc", "eth0"))

	j = reopen(t, j, dir)
	if diff := cmp.Diff([]*Entry{&second, &first}, j.All(), compareAddr); diff != "" {
		t.Errorf("entries, oldest first (-want +got):\n%s", diff)
	}
	if _, ok := j.Get("ccc", "eth0"); ok {
		t.Error("a removed entry came back")
	}
}

func TestAllIsOfOneMoment(t *testing.T) {
	j := open(t, t.TempDir())
	first, changed, second := entry("aaa"), entry("aaa"), entry("bbb")
	changed.Phase = Releasing
	put(t, j, first)
	before := j.All()
	put(t, j, changed)
	put(t, j, second)
	after := j.All()
	check.OK(t, j.Remove("aaa", "eth0"))
	if diff := cmp.Diff([]*Entry{&first}, before, compareAddr); diff != "" {
		t.Errorf("before the changes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]*Entry{&changed, &second}, after, compareAddr); diff != "" {
		t.Errorf("before the removal (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]*Entry{&second}, j.All(), compareAddr); diff != "" {
		t.Errorf("in the end (-want +got):\n%s", diff)
	}
}

func TestThePodOfEntries(t *testing.T) {
	j := open(t, t.TempDir())
	second, first, other := entry("aaa"), entry("bbb"), entry("ccc")
	first.Created = second.Created.Add(-time.Second)
	other.PodUID = "another"
	for _, e := range []Entry{second, first, other} {
		put(t, j, e)
	}
	if diff := cmp.Diff([]*Entry{&first, &second}, j.OfPod(first.PodUID), compareAddr); diff != "" {
		t.Errorf("oldest first (-want +got):\n%s", diff)
	}
	check.OK(t, j.Remove("aaa", "eth0"))
	if got := j.OfPod(first.PodUID); len(got) != 1 || got[0].ContainerID != "bbb" {
		t.Errorf("after the removal: %v", got)
	}
}

func TestRemoveWorksTwice(t *testing.T) {
	j := open(t, t.TempDir())
	put(t, j, entry("aaa"))
	for range 2 {
		check.OK(t, j.Remove("aaa", "eth0"))
	}
}

func TestRotationsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if got := j.Rotations(); len(got) != 0 {
		t.Fatalf("rotations of a new journal: %v", got)
	}
	want := map[string]netip.Addr{"a": netip.MustParseAddr("10.0.0.5"), "b": netip.MustParseAddr("fd00::7")}
	check.OK(t, j.PutRotations(want))
	j = reopen(t, j, dir)
	if diff := cmp.Diff(want, j.Rotations(), compareAddr); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheIdentitySurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if id, known := j.Identity(); known {
		t.Fatalf("the identity of a new journal: %+v", id)
	}
	for _, uid := range []string{"older", "newer"} {
		check.OK(t, j.PutIdentity(Identity{Node: "n1", NodeUID: uid, Cluster: "c"}))
	}
	want := Identity{Node: "n1", NodeUID: "newer", Cluster: "c"}
	for range 2 {
		if id, known := j.Identity(); !known || id != want {
			t.Errorf("identity %+v, known %v", id, known)
		}
		j = reopen(t, j, dir)
	}
}

func TestOneAgentAtATime(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if _, err := Open(dir); !errors.Is(err, ErrLocked) {
		t.Fatalf("second open: %v, want ErrLocked", err)
	}
	reopen(t, j, dir)
}

func TestNamesThatLeaveTheDirectoryAreRefused(t *testing.T) {
	j := open(t, t.TempDir())
	for _, name := range []string{"", "..", "../a", "a/b", "a@b", "a\x00", ".write-1"} {
		e := entry(name)
		if err := j.Put(e); err == nil {
			t.Errorf("container ID %q was accepted", name)
		}
		if err := j.Remove(name, "eth0"); err == nil {
			t.Errorf("container ID %q was accepted for removal", name)
		}
	}
	for _, name := range []string{"", "a/b", ".."} {
		e := entry("aaa")
		e.Interface = name
		if err := j.Put(e); err == nil {
			t.Errorf("interface %q was accepted", name)
		}
	}
}

func TestAChangedArgumentDoesNotChangeTheJournal(t *testing.T) {
	j := open(t, t.TempDir())
	e := entry("aaa")
	put(t, j, e)
	e.Addresses[0].Token = 0
	if got, _ := j.Get("aaa", "eth0"); got.Addresses[0].Token != 1<<60 {
		t.Error("the entry shares its addresses with the caller")
	}
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
				if err := j.Put(e); err != nil {
					t.Error(err)
				}
				if n%3 == 0 {
					if err := j.Remove(e.ContainerID, e.Interface); err != nil {
						t.Error(err)
					}
				}
				j.All()
				if err := j.PutRotations(map[string]netip.Addr{"a": netip.IPv4Unspecified()}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	before := j.All()
	j = reopen(t, j, dir)
	if diff := cmp.Diff(before, j.All(), compareAddr); diff != "" {
		t.Errorf("disk and memory differ (-memory +disk):\n%s", diff)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*", tempPattern)); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
}

func TestAFailedWriteLeavesTheOldEntry(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	put(t, j, entry("aaa"))
	path := filepath.Join(dir, entriesDir, "bbb@eth0.json")
	check.OK(t, os.MkdirAll(filepath.Join(path, "in the way"), 0o700))
	if err := j.Put(entry("bbb")); err == nil {
		t.Fatal("a write over a directory succeeded")
	}
	if got := j.All(); len(got) != 1 || got[0].ContainerID != "aaa" {
		t.Errorf("entries after the failed write: %v", got)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*", tempPattern)); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
}

// An agent that is rolled back reads what a later one has written.
func TestAnEntryWithFieldsOfALaterAgentIsRead(t *testing.T) {
	raw, err := json.Marshal(entry("new"))
	check.OK(t, err)
	raw = append(raw[:len(raw)-1], `,"laterRouting":{"hostLink":true,"listed":["10.0.0.0/8"]}}`...)
	j := open(t, disk(t, "new@eth0.json", written(t, json.RawMessage(raw))))
	defer j.Close()
	e, _ := j.Get("new", "eth0")
	if diff := cmp.Diff(entry("new"), e, compareAddr); diff != "" || len(j.Corrupt()) > 0 {
		t.Errorf("entry (-want +got):\n%s\ncorrupt %v", diff, j.Corrupt())
	}
}
