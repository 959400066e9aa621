// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// After an outage a node has a GET to make for each pod, and others wait for
// what it gives back.
func TestWhatGivesAddressesBackIsResumedFirst(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.3"))
	first, second := r.Pod("web-a", "u1"), r.Pod("web-b", "u2")
	r.MustAdd(first)
	given := r.MustAdd(second)[0]
	e, _ := r.Book.Get(second.ContainerID, second.Interface)
	e.Phase = journal.Releasing
	check.OK(t, r.Book.Put(e))
	r.Pending.Add(first.Attachment, second.Attachment)
	var asked []string
	r.API.Before = func(_, name string) error {
		asked = append(asked, name)
		return nil
	}
	if left, err := r.Recovery.Resume(t.Context(), time.Second); left > 0 || err != nil {
		t.Fatalf("%d left: %v", left, err)
	}
	if len(asked) == 0 || asked[0] != given {
		t.Errorf("asked for %v, want %s first", asked, given)
	}
}

// unhooked deletes no pod of one name, since a webhook does not answer for it.
type unhooked struct {
	client.Writer
	pod string
}

func (u unhooked) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if o.GetName() == u.pod {
		return apierrors.NewInternalError(errors.New("failed calling webhook"))
	}
	return u.Writer.Delete(ctx, o, opts...)
}

// What looks as if the API server were away may be about one pod only.
func TestAnEntryThatCannotBeResumedKeepsNoOtherFromIt(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.3"))
	stuck, lost := r.Pod("stuck", "u1"), r.Pod("lost", "u2")
	r.Recovery.Client = unhooked{r.Recovery.Client, "stuck"}
	r.MustAdd(stuck)
	r.MustAdd(lost)
	for _, addr := range []string{"10.0.0.2", "10.0.0.3"} {
		r.Kernel.Claimed(fakenode.Key(addr), 1<<40)
		r.Replace(fakenode.Held(addr))
	}
	r.Recovery.LookAgain()
	for range 3 {
		if left, err := r.Recovery.Resume(t.Context(), time.Second); left == 0 || err == nil {
			t.Fatalf("%d left, %v", left, err)
		}
	}
	if _, entry := r.Journal.Get(lost.ContainerID, lost.Interface); entry {
		t.Error("it was never resumed")
	}
}

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
