// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/guards"
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
		"another pod":                  func(r *fakenode.Node, _ agentapi.AddRequest) agentapi.AddRequest { return r.Pod("new", "u2") },
		"another interface of the pod": func(_ *fakenode.Node, old agentapi.AddRequest) agentapi.AddRequest { return second(old, "eth1") },
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
			failed, newer := next(older, "c-failed"), next(older, "c-newer")
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
			_, there := r.Attachments.Get(older.ContainerID, older.Interface)
			check.That(t, !there, "the older sandbox stays in the journal")
		})
	}
}

// fullDisk takes no entry any more.
type fullDisk struct{ attachment.Disk }

func (fullDisk) Replace(string, *attachment.Entry) error {
	return &fs.PathError{Op: "write", Path: "entry", Err: syscall.ENOSPC}
}

// A runtime tries again and again: each try would cost a slot until the next boot.
func TestAFullDiskCostsNoSlotsAndIsNotTheAPIServers(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	disk := r.Attachments.Disk
	r.Attachments.Disk = fullDisk{disk}
	for range 3 {
		err := check.Err(r.Add(t.Context(), web))
		check.Must(t, errors.Is(err, syscall.ENOSPC) && !strings.Contains(err.Error(), "API server"), "got %v", err)
	}
	r.Want()
	r.Attachments.Disk = disk
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
	r.After.Wait() // the steps after the answers may write an entry
	r.Attachments.Disk = fullDisk{r.Attachments.Disk}
	r.MustDel(one)
	r.API.SetAway(true)
	check.Is(t, r.Del(t.Context(), fakenode.Del(two)), syscall.ENOSPC, "neither freed nor recorded:")
	left := r.Attachments.All()
	check.That(t, len(left) == 1 && left[0].ContainerID == two.ContainerID, "entries: %v", left)
	r.API.SetAway(false)
	r.MustDel(two)
	r.Want()
}

// readOnly is a read-only disk.
type readOnly struct{}

func (readOnly) Replace(string, *attachment.Entry) error { return syscall.EROFS }
func (readOnly) Remove(string) error                     { return syscall.EROFS }

func TestADELOnAReadOnlyDiskFreesNow(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.After.Wait()
	disk := r.Attachments.Disk
	r.Attachments.Disk = readOnly{}
	r.MustDel(web)
	r.MustDel(web) // the kubelet may repeat it
	r.Want()
	r.Attachments.Disk = disk
	r.Settle()
	check.None(t, r.Attachments.All(), "entries:")
}

func ofThisNode(s *v1alpha1.IPLeaseSpec) {
	s.Previous.Node, s.Previous.Session = fakenode.ThisNode, fakenode.ThisSession
}

func TestAVerifierKillsASlotThatOnlyTheJournalKnows(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	check.OK(t, r.Kernel.Remove(fakenode.Key("10.0.0.2")))
	r.Replace(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone), ofThisNode))
	l, dead, err := r.Releaser.KillHolder(t.Context(), "10.0.0.2")
	check.That(t, err == nil && dead && l.Name == "10.0.0.2", "lease %v, dead %v, %v", l, dead, err)
	check.That(t, r.Kernel.IsDead(r.SlotOf(web)), "the holder is said to be dead, and may speak")
}

func TestAVerifierKillsNobodyElse(t *testing.T) {
	two := attachment.Address{Addr: fakenode.Two, Pool: "v4", LeaseName: "10.0.0.2", Token: 50}
	underWay, other := two, two
	underWay.Token = 0
	other.LeaseName = "storage.10.0.0.2"
	const slot = 77
	for name, e := range map[string]attachment.Entry{
		"a take-over under way":        {Session: fakenode.ThisSession, Addresses: []attachment.Address{underWay}},
		"a pod of an earlier boot":     {Session: "node-1/boot-0", Addresses: []attachment.Address{two}},
		"a pod of another network":     {Session: fakenode.ThisSession, Addresses: []attachment.Address{other}},
		"a pod without this address":   {Session: fakenode.ThisSession},
		"a guard of another's address": {Session: fakenode.ThisSession, Addresses: []attachment.Address{{Addr: two.Addr.Next(), LeaseName: "10.0.0.3", Token: 50}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			r.API.Put(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone)))
			e.ContainerID, e.Interface, e.Phase, e.Slot = "c", "eth0", attachment.Intent, slot
			check.OK(t, r.Attachments.Put(e))
			_, dead, err := r.Releaser.KillHolder(t.Context(), "10.0.0.2")
			check.That(t, err == nil && !dead, "dead %v, %v", dead, err)
			check.That(t, !r.Kernel.IsDead(slot), "killed")
		})
	}
}

func TestAVerifierKillsTheADDOfTheVeryHolder(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.API.Put(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone)))
	const slot = 77
	e := attachment.Entry{
		Session: fakenode.ThisSession, ContainerID: "c0", Interface: "eth0", Phase: attachment.Intent, Slot: slot,
		Addresses: []attachment.Address{{Addr: fakenode.Two, Pool: "v4", LeaseName: "10.0.0.2"}},
	}
	check.OK(t, r.Attachments.Put(e))
	r.Attachments.Calls.BeginADD(e.Attachment())
	_, _, err := r.Releaser.KillHolder(t.Context(), "10.0.0.2")
	check.Must(t, err == nil, "%v", err)
	check.That(t, r.Kernel.IsDead(slot) && r.Attachments.Calls.IsOvertaken(e.Attachment()), "the ADD goes on, and is about to speak")
}

func TestAnADDThatAVerifierHasOvertakenIsNotAnswered(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	r.Wire.OnClaim = func(segment.Claim) { r.Attachments.Calls.Overtake(web.Attachment) }
	err := check.Err(r.Add(t.Context(), web))
	check.That(t, isCode(err, agentapi.CodeTryAgainLater), "got %v", err)
	r.Want()
	r.Wire.OnClaim = nil
	r.MustAdd(web)
}

// The controller may take the lease of an ADD that stalls, and another node may free the address.
func TestAnADDThatStallsReadsItsLeaseBeforeItsAnswer(t *testing.T) {
	take := func(r *fakenode.Node) { changeLease(r, fakenode.Quarantined(v1alpha1.ReasonPodGone)) }
	for _, test := range []struct {
		name  string
		after time.Duration
		then  func(*fakenode.Node)
		looks int
		want  string
	}{
		{"a usual one", time.Second, func(*fakenode.Node) {}, 0, "10.0.0.2 Bound"},
		{"its lease is as it was", 3 * time.Second, func(*fakenode.Node) {}, 1, "10.0.0.2 Bound"},
		{"its lease is quarantined", 3 * time.Second, take, 1, "10.0.0.2 Quarantined"},
		{"another pod has the address", 3 * time.Second, func(r *fakenode.Node) {
			changeLease(r, func(s *v1alpha1.IPLeaseSpec) { s.NodeName, s.Holder.ContainerID = "n2", "c9" })
		}, 1, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			web := r.Pod("web", "u1")
			looks := 0
			r.Wire.OnClaim = func(segment.Claim) {
				r.Skip(test.after)
				test.then(r)
				r.API.Before = func(verb, name string) error {
					if verb == "get" && name == "10.0.0.2" {
						looks++
					}
					return nil
				}
			}
			err := check.Err(r.Add(t.Context(), web))
			isBound := test.want == "10.0.0.2 Bound"
			check.That(t, isBound == (err == nil) && (isBound || isCode(err, agentapi.CodeTryAgainLater)), "got %v", err)
			check.That(t, min(looks, 1) == test.looks, "%d looks, want %d", looks, test.looks)
		})
	}
}

// The first family is bound, and its lease quarantined while the second is sought.
func TestAnADDWhoseFirstFamilyIsKilledMeanwhileIsNotAnswered(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"), fakenode.Pool("v6", "fd00::/64", v1alpha1.ModeEnforce, "fd00::2"))
	r.Wire.OnClaim = func(c segment.Claim) {
		l := r.API.Leases()["10.0.0.2"]
		if !c.Addr.Is6() || l == nil || l.Spec.State == v1alpha1.StateQuarantined {
			return
		}
		fakenode.Quarantined(v1alpha1.ReasonPodGone)(&l.Spec)
		r.Replace(l)
		_, _, err := r.Releaser.KillHolder(t.Context(), "10.0.0.2")
		check.That(t, err == nil, "%v", err)
	}
	r.Refused(agentapi.CodeTryAgainLater, r.Pod("web", "u1"))
}

// What an earlier ADD has left, and the agent's death, is no word about this one.
func TestAnADDThatIsRepeatedAfterACrashIsNotOvertakenByItsOwnUndo(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	web := r.Pod("web", "u1")
	r.Death.Before = "install 10.0.0.2"
	check.Must(t, check.Err(r.Add(t.Context(), web)) != nil, "ADD succeeds")
	r.Restart()
	r.MustAdd(web)
}

func TestNothingIsProbedInstalledOrAnsweredBeforeTheGuardEnforces(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	late := lateGuard{r.Guards.Kernel.Guards, make(chan struct{})}
	r.Guards.Kernel.Guards = late
	answered := beginAdd(t.Context(), r, r.Pod("web", "u1"))
	r.Eventually("the lease is created meanwhile", func() bool { return slices.Contains(r.Names(), "10.0.0.2 Bound") })
	_, installed, _ := r.Kernel.Lease(fakenode.Key("10.0.0.2"))
	check.That(t, !installed && !r.Wire.Took("probe 10.0.0.2") && len(answered) == 0, "the ADD went on without its guard")
	close(late.enforce)
	check.OK(t, <-answered)
}

func TestAnInterfaceThatGoesDuringItsADDLeavesNothing(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	r.Kernel.Unplug(web.NetNS, web.Interface)
	check.Is(t, check.Err(r.Add(t.Context(), web)), bpf.ErrNoDevice, "got")
	r.Want()
	check.None(t, r.Attachments.All(), "journal")
}

func TestNothingIsWrittenForAnInterfaceWhoseSegmentCannotBeOpened(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.OpenSegment = func(int) (acquire.Segment, error) { return nil, bpf.ErrNoDevice }
	err := check.Err(r.Add(t.Context(), r.Pod("web", "u1")))
	check.That(t, errors.Is(err, bpf.ErrNoDevice) && strings.Contains(err.Error(), "eth1"), "got %v", err)
	check.Equal(t, r.API.Calls["create"], 0, "leases created:")
	check.None(t, r.Attachments.All(), "journal")
}

func TestAnADDFailsWhoseObserverCannotBePutBack(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.Wire.ObserveFails = bpf.ErrNoDevice
	check.Is(t, check.Err(r.Add(t.Context(), r.Pod("web", "u1"))), bpf.ErrNoDevice, "got")
	check.None(t, r.Wire.Did(), "unobserved:")
	r.Want()
	check.None(t, r.Attachments.All(), "journal")
}

// lateGuard keeps a guard from enforcing until it is let go.
type lateGuard struct {
	guards.KernelGuards
	enforce chan struct{}
}

func (k lateGuard) Stage(g bpf.Guard) error {
	<-k.enforce
	return k.KernelGuards.Stage(g)
}
