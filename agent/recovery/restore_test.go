// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/recovery"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

func TestANewAgentFinishesTheMoveOfEveryGuardOfItsBoot(t *testing.T) {
	for _, phase := range []attachment.Phase{attachment.Intent, attachment.Bound, attachment.Releasing} {
		for _, session := range []string{fakenode.ThisSession, "node-1/boot-0"} {
			r := fakenode.New(t)
			e := attachment.Entry{
				ContainerID: "c-u1", Interface: "eth0", NetNS: "/netns/c-u1", Phase: phase, Session: session,
				Slot: 7, Parent: "eth1", ParentIndex: fakenode.ParentIndex, MAC: "02:00:00:00:00:01",
			}
			check.OK(t, r.Attachments.Put(e))
			check.OK(t, r.Kernel.Stage(guards.Of(&e)))
			r.Restart()
			ours := session == fakenode.ThisSession
			check.That(t, r.Kernel.Pinned[7] == ours && r.Kernel.IsDead(7) == (ours && phase != attachment.Bound),
				"%s of %s: pinned %v, dead %v", phase, session, r.Kernel.Pinned[7], r.Kernel.IsDead(7))
		}
	}
}

// The pod may be replaced between the decision and the write.
func TestALostLeaseIsNotWrittenForAPodThatWasReplaced(t *testing.T) {
	r, _ := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.API.Drop(fakenode.Held("10.0.0.2"))
	e, address, _ := r.Attachments.Holder(fakenode.ParentIndex, netip.MustParseAddr("10.0.0.2"))
	r.Pod("web", "u2")
	check.Is(t, r.Recovery.Rebind(t.Context(), e, address, nil), recovery.ErrOutrun, "got")
	r.Want()
	r.Pod("web", "u1")
	check.Is(t, r.Recovery.Rebind(t.Context(), e, address, nil), nil, "got")
	check.Equal(t, r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Holder.PodUID, "u1", "the lease is of")
}

// A claim may come between the decision and the write: the new token must not unfence the address.
func TestALostLeaseThatWasClaimedMeanwhileIsNotInstalled(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.API.Drop(fakenode.Held("10.0.0.2"))
	e, address, _ := r.Attachments.Holder(fakenode.ParentIndex, netip.MustParseAddr("10.0.0.2"))
	r.Kernel.Claimed(fakenode.Key("10.0.0.2"), address.Token+1)
	check.Is(t, r.Recovery.Rebind(t.Context(), e, address, nil), recovery.ErrOutrun, "got")
	check.That(t, !r.Speaks(web, "10.0.0.2"), "unfenced")
}

// The store went back to a time at which this node kept the address ready for the next pod. That pod
// has it.
func TestALivingPodTakesTheWarmLeaseOfItsNode(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	l := r.Lease("10.0.0.2", v1alpha1.StateBound)
	r.API.Drop(l)
	l.Spec.State, l.Spec.Holder = v1alpha1.StateWarm, nil
	r.API.Put(l)
	r.Settle()
	check.Equal(t, r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Holder.PodUID, "u1", "the lease is of")
	check.That(t, r.Speaks(web, "10.0.0.2"), "fenced")
}

// An etcd that is restored without --bump-revision hands out revisions again: a
// lease that is written again is older than its holder's token.
func TestAHolderKeepsItsTokenUntilTheStoreHasComeAsFarAgain(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.API.Version = 5000
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	token := func() uint64 {
		t.Helper()
		installed, _, err := r.Kernel.Lease(fakenode.Key("10.0.0.2"))
		e, _ := r.Attachments.Get(web.ContainerID, web.Interface)
		check.Must(t, err == nil && e.Addresses[0].Token == installed.Token,
			"the journal says %+v, the kernel %+v, %v", e.Addresses[0], installed, err)
		return installed.Token
	}
	before := token()

	r.API.Drop(fakenode.Held("10.0.0.2"))
	r.API.Version = 1000
	for _, what := range []string{"at once", "after a restart", "after another"} {
		r.Restart()
		r.Settle()
		l := r.Lease("10.0.0.2", v1alpha1.StateBound)
		check.That(t, l.Spec.Reason == v1alpha1.ReasonStoreWentBack && l.Spec.Message != "" && token() == before && r.Speaks(web, "10.0.0.2"),
			"%s: lease %+v, token %d, was %d, speaks %v", what, l.Spec, token(), before, r.Speaks(web, "10.0.0.2"))
	}
	check.Equal(t, r.Calls("update"), 1, "the lease was told times:")

	r.API.Version = 1_000_000
	r.Recovery.Suspect(t.Context())
	check.That(t, len(r.Attachments.Pending.Take()) == 1, "the audit does not look at it")
	r.Restart()
	r.Settle()
	l := r.Lease("10.0.0.2", v1alpha1.StateBound)
	check.That(t, l.Spec.Reason == "" && l.Spec.Message == "" && token() > before && r.Speaks(web, "10.0.0.2"),
		"caught up: lease %+v, token %d, was %d, speaks %v", l.Spec, token(), before, r.Speaks(web, "10.0.0.2"))
	r.MustDel(web)
	r.Want()
}

// After an outage a node has a GET to make for each pod, and others wait for what it gives back.
func TestWhatGivesAddressesBackIsResumedFirst(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.3"))
	first, second := r.Pod("web-a", "u1"), r.Pod("web-b", "u2")
	r.MustAdd(first)
	given := r.MustAdd(second)[0]
	e, _ := r.Attachments.Get(second.ContainerID, second.Interface)
	e.Phase = attachment.Releasing
	check.OK(t, r.Attachments.Put(e))
	r.Attachments.Pending.Add(first.Attachment, second.Attachment)
	var asked []string
	r.API.Before = func(_, name string) error {
		asked = append(asked, name)
		return nil
	}
	left, err := r.Recovery.Resume(t.Context(), time.Second)
	check.Must(t, left <= 0 && err == nil, "%d left: %v", left, err)
	check.That(t, len(asked) != 0 && asked[0] == given, "asked for %v, want %s first", asked, given)
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
		left, err := r.Recovery.Resume(t.Context(), time.Second)
		check.Must(t, left != 0 && err != nil, "%d left, %v", left, err)
	}
	_, entry := r.Attachments.Get(lost.ContainerID, lost.Interface)
	check.That(t, !entry, "it was never resumed")
}

// brokenFile cannot forget the entry of one container.
type brokenFile struct {
	attachment.Disk
	container string
}

func (b brokenFile) Remove(path string) error {
	if strings.HasPrefix(filepath.Base(path), b.container+"@") {
		return &fs.PathError{Op: "remove", Path: path, Err: syscall.EIO}
	}
	return b.Disk.Remove(path)
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
	r.After.Wait() // the steps after the answers may write an entry
	r.Attachments.Disk = brokenFile{r.Attachments.Disk, one.ContainerID}
	left, err := r.Recovery.Resume(t.Context(), attachment.AskTimeout)
	check.That(t, left == 1 && errors.Is(err, syscall.EIO), "%d are left, %v", left, err)
	r.Want()
}
