// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/test/fakenode"
)

// brokenFile cannot forget the entry of one container.
type brokenFile struct {
	holder.Journal
	container string
}

func (b brokenFile) Remove(containerID, ifname string) error {
	if containerID == b.container {
		return &fs.PathError{Op: "remove", Path: containerID, Err: syscall.EIO}
	}
	return b.Journal.Remove(containerID, ifname)
}

func TestAnEntryThatTheDiskKeepsDelaysNoOther(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.3"))
	one, two := r.Pod("one", "u1"), r.Pod("two", "u2")
	r.MustAdd(one)
	r.MustAdd(two)
	r.API.SetAway(true)
	r.MustDel(one)
	r.MustDel(two)
	r.API.SetAway(false)
	r.Wait() // the steps after the answers read the journal
	r.Journal = brokenFile{r.Journal, one.ContainerID}
	if left, err := r.Recovery.Resume(t.Context(), holder.AskTimeout); left != 1 || !errors.Is(err, syscall.EIO) {
		t.Errorf("%d are left, %v", left, err)
	}
	r.Want()
}
