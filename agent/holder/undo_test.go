// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/fenceline/fenceline/agent/holder/node"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// R4: who speaks for it may be a pod whose record was lost, and who follows its
// name to a Retained address claims before it probes.
func TestAnAddressThatIsUndoneBeforeItsProofIsNotKeptForAName(t *testing.T) {
	for name, c := range map[string]struct {
		setup func(*fakenode.Node)
		// updates are written before the API server goes away.
		updates int
	}{
		"on demand": {func(r *fakenode.Node) { r.Wire.Answers[fakenode.Two] = fakenode.Stranger }, 0},
		"Warm": {func(r *fakenode.Node) {
			l := r.WarmLease("10.0.0.2", true)
			r.Warm.Doubts = map[string]segment.Doubt{l.Name: segment.DoubtSpoken}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.Warmed(fakenode.V4("10.0.0.2")))
			c.setup(r)
			left := c.updates
			r.API.Before = func(verb, _ string) error {
				if verb != "update" {
					return nil
				}
				if left--; left >= 0 {
					return nil
				}
				return &fakenode.NetError{}
			}
			r.Refused(agentapi.CodeTryAgainLater, r.Pod("web-0", "u1", fakenode.OfStatefulSet))
			r.API.Before = nil
			r.Settle()
			r.Want()
		})
	}
}

// The holder's record is lost, and no other address is left: an ADD gets its lease, meets the holder,
// and cannot write that down.
func TestTheUndoOfAnADDEndsNobodyWhoseRecordWasLost(t *testing.T) {
	for name, next := range map[string]func(*fakenode.Node, agentapi.AddRequest) agentapi.AddRequest{
		"another pod": func(r *fakenode.Node, _ agentapi.AddRequest) agentapi.AddRequest { return r.Pod("new", "u2") },
		"another interface of the pod": func(_ *fakenode.Node, old agentapi.AddRequest) agentapi.AddRequest {
			old.Interface = "eth1"
			return old
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, old := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
			r.API.Drop(fakenode.Held("10.0.0.2"))
			r.API.Breaks("update")
			r.Refused(agentapi.CodeTryAgainLater, next(r, old))
			r.API.Before = nil
			r.Settle()
			r.Want("10.0.0.2 Bound")
			check.That(t, r.Speaks(old, "10.0.0.2"), "the living interface is mute")
			r.HoldsWhatTheJournalSays(old)
		})
	}
}

// The take-over by a newer sandbox is undone, which frees the address, and the next
// sandbox has another one by the time the first is resumed.
func TestAPodIsNotDeletedForWhatAnOlderSandboxHasLost(t *testing.T) {
	for name, happens := range map[string]func(*fakenode.Node){
		"to nobody":         func(*fakenode.Node) {},
		"to another node's": func(r *fakenode.Node) { r.API.Put(fakenode.Held("10.0.0.2")) },
		"and set aside since": func(r *fakenode.Node) {
			r.API.Put(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, older := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
			failed, newer := older, older
			failed.ContainerID, failed.NetNS = "c-failed", "/netns/c-failed"
			newer.ContainerID, newer.NetNS = "c-newer", "/netns/c-newer"
			r.Wire.OnClaim = func(c segment.Claim) { r.Kernel.Claimed(fakenode.Key("10.0.0.2"), c.Token+1) }
			r.Refused(agentapi.CodeTryAgainLater, failed)
			r.MustDel(failed)
			r.Wire.OnClaim = nil
			happens(r)
			got := r.MustAdd(newer)
			r.Settle()
			check.That(t, r.HasPod("web"), "the pod is deleted")
			check.That(t, r.Speaks(newer, got[0]), "the newer sandbox is mute")
			r.HoldsWhatTheJournalSays(newer)
			_, there := r.Journal.Get(older.ContainerID, older.Interface)
			check.That(t, !there, "the older sandbox stays in the journal")
		})
	}
}

// fullDisk takes no entry any more.
type fullDisk struct{ node.Journal }

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
		check.Must(t, errors.Is(err, syscall.ENOSPC) && !strings.Contains(err.Error(), "API server"), "got %v", err)
	}
	check.That(t, !r.TakesAPIServerForAway(), "the API server is taken for away")
	r.Want()
	r.Journal = book
	check.OK(t, r.Guards.Sweep())
	free := len(r.FreeSlots())
	check.That(t, free >= int(bpf.MaxSlot)-1, "%d slots are free", free)
	check.That(t, r.Speaks(web, r.MustAdd(web)[0]), "the pod is mute")
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
	check.Is(t, r.Del(t.Context(), agentapi.DelRequest{Attachment: two.Attachment}), syscall.ENOSPC, "neither freed nor recorded:")
	left := r.Journal.All()
	check.That(t, len(left) == 1 && left[0].ContainerID == two.ContainerID, "entries: %v", left)
	r.API.SetAway(false)
	r.MustDel(two)
	r.Want()
}

// readOnly is a journal on a read-only disk.
type readOnly struct{ node.Journal }

func (readOnly) Put(journal.Entry) error     { return syscall.EROFS }
func (readOnly) Remove(string, string) error { return syscall.EROFS }

func TestADELOnAReadOnlyDiskFreesNow(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.Wait()
	book := r.Journal
	r.Journal = readOnly{book}
	r.MustDel(web)
	r.MustDel(web) // the kubelet may repeat it
	r.Want()
	r.Journal = book
	r.Settle()
	check.None(t, r.Journal.All(), "entries:")
}
