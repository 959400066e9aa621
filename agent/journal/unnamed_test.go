package journal

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

func TestAnEntryWithoutANameCountsFromItsFirstWholeValueOn(t *testing.T) {
	before, after := entry("new"), entry("new")
	after.Phase = Releasing
	first, second := written(t, before), written(t, after)
	both := append(slices.Clone(first), second...)
	for n := range len(both) + 1 {
		dir := disk(t, ".entry-123.new", both[:n])
		j := open(t, dir)
		e, ok := j.Get("new", "eth0")
		want := Phase("")
		switch {
		case n == len(both):
			want = after.Phase
		case n >= len(first):
			want = before.Phase
		}
		if ok != (want != "") || e.Phase != want || len(j.Corrupt()) != 0 {
			t.Fatalf("cut at byte %d: %v %s, want %q; corrupt %v", n, ok, e.Phase, want, j.Corrupt())
		}
		wantFiles(t, dir, fmt.Sprintf("cut at byte %d", n), len(j.All()), 0)
		j.Close()
	}
}

func TestAnEntryWithoutANameThatIsCorruptIsSetAside(t *testing.T) {
	data := written(t, entry("new"))
	data[len(data)-20] ^= 1
	dir := disk(t, ".entry-123.new", data)
	wantSetAside(t, open(t, dir), ".entry-123.new", "flipped", data)
	j := open(t, dir)
	if len(j.Corrupt()) != 0 {
		t.Errorf("what was set aside is read again: %v", j.Corrupt())
	}
}

func TestAFileWithoutANameDoesNotGrowForEver(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if err := j.Prepare(); err != nil {
		t.Fatal(err)
	}
	e := entry("new")
	for n := range 2 * maxExtended {
		e.Slot = uint32(n)
		put(t, j, e)
	}
	wantFiles(t, dir, "written often", sparesMade, sparesMade-1)
	j = reopen(t, j, dir)
	if got, _ := j.Get("new", "eth0"); got.Slot != e.Slot {
		t.Errorf("slot %d, want %d", got.Slot, e.Slot)
	}
}

// A write that failed half leaves bytes that nothing may be added to.
func TestAFileWithoutANameIsReplacedOnceAWriteHasFailed(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if err := j.Prepare(); err != nil {
		t.Fatal(err)
	}
	e := entry("new")
	put(t, j, e)
	file := j.unnamed[key{"new", "eth0"}]
	if _, err := file.WriteString("{"); err != nil {
		t.Fatal(err)
	}
	var err error
	if j.unnamed[key{"new", "eth0"}], err = os.Open(file.Name()); err != nil {
		t.Fatal(err)
	}
	e.Phase = Releasing
	if err := j.Put(e); err == nil {
		t.Fatal("a file that cannot be written was written")
	}
	put(t, j, e)
	j = reopen(t, j, dir)
	if got, ok := j.Get("new", "eth0"); !ok || got.Phase != Releasing || len(j.Corrupt()) > 0 {
		t.Errorf("%v %s, corrupt %v", ok, got.Phase, j.Corrupt())
	}
}
