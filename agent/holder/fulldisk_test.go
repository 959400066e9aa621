// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// fullDisk takes no entry any more.
type fullDisk struct{ holder.Journal }

func (fullDisk) Put(journal.Entry) error {
	return &fs.PathError{Op: "write", Path: "entry", Err: syscall.ENOSPC}
}

// A runtime tries again and again: each try would cost a slot until the next boot.
func TestAFullDiskCostsNoSlotsAndIsNotTheAPIServers(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	book := r.Journal
	r.Journal = fullDisk{book}
	for range 3 {
		_, err := r.Add(t.Context(), web)
		if !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "API server") {
			t.Fatalf("got %v", err)
		}
	}
	if r.TakesAPIServerForAway() {
		t.Error("the API server is taken for away")
	}
	r.Want()
	r.Journal = book
	check.OK(t, r.Guards.Sweep())
	if free := len(r.FreeSlots()); free < bpf.MaxSlot-1 {
		t.Errorf("%d slots are free", free)
	}
	if got := r.MustAdd(web); !r.Speaks(web, got[0]) {
		t.Error("the pod is mute")
	}
}

// A node frees its disk by ending pods.
func TestADELOnAFullDiskFreesNowOrFails(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.3"))
	one, two := r.Pod("one", "u1"), r.Pod("two", "u2")
	r.MustAdd(one)
	r.MustAdd(two)
	r.Wait() // the steps after the answers read the journal
	r.Journal = fullDisk{r.Journal}
	r.MustDel(one)
	r.API.SetAway(true)
	if err := r.Del(t.Context(), agentapi.DelRequest{Attachment: two.Attachment}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("neither freed nor recorded: %v", err)
	}
	if left := r.Journal.All(); len(left) != 1 || left[0].ContainerID != two.ContainerID {
		t.Errorf("entries: %v", left)
	}
	r.API.SetAway(false)
	r.MustDel(two)
	r.Want()
}
