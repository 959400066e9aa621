package holder

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/fenceline/fenceline/agent/journal"
)

// fullDisk takes no entry any more.
type fullDisk struct{ Journal }

func (fullDisk) Put(journal.Entry) error {
	return &fs.PathError{Op: "write", Path: "entry", Err: syscall.ENOSPC}
}

// A runtime tries again and again: each try would cost a slot until the next boot.
func TestAFullDiskCostsNoSlotsAndIsNotTheAPIServers(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	book := r.Journal
	r.Journal = fullDisk{book}
	for range 3 {
		_, err := r.Add(t.Context(), web)
		if !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "API server") {
			t.Fatalf("got %v", err)
		}
	}
	if r.away.Load() {
		t.Error("the API server is taken for away")
	}
	r.want()
	r.Journal = book
	if err := r.Sweep(); err != nil {
		t.Fatal(err)
	}
	if left := r.slots.leaving(); len(left) > 0 || len(r.slots.used) != 1 {
		t.Errorf("slots %v are nobody's and %v are kept from others", left, r.slots.used)
	}
	if got := r.add(web); !r.speaks(web, got[0]) {
		t.Error("the pod is mute")
	}
}

// brokenFile cannot forget the entry of one container.
type brokenFile struct {
	Journal
	container string
}

func (b brokenFile) Remove(containerID, ifname string) error {
	if containerID == b.container {
		return &fs.PathError{Op: "remove", Path: containerID, Err: syscall.EIO}
	}
	return b.Journal.Remove(containerID, ifname)
}

func TestAnEntryThatTheDiskKeepsDelaysNoOther(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.3"))
	one, two := r.pod("one", "u1"), r.pod("two", "u2")
	r.add(one)
	r.add(two)
	r.api.setAway(true)
	r.del(one)
	r.del(two)
	r.api.setAway(false)
	r.Journal = brokenFile{r.Journal, one.ContainerID}
	if left, err := r.resume(t.Context(), askTimeout); left != 1 || !errors.Is(err, syscall.EIO) {
		t.Errorf("%d are left, %v", left, err)
	}
	r.want()
}
