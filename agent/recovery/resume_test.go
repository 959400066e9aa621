// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/recovery"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// after is what the resumption of one bound pod is expected to leave.
type after struct {
	speaks, journalled, podExists bool
	leases                        []string
	// undecided: nothing can be done yet.
	undecided bool
}

var goesOn = after{speaks: true, journalled: true, podExists: true, leases: []string{"10.0.0.2 Bound"}}

// R7, as far as the flow goes; the table of all cases is agent/lease's.
func TestR7AGETOfTheLeaseDecidesAfterARestart(t *testing.T) {
	byOther := fakenode.Held("10.0.0.2")
	unwanted := func(r *fakenode.Node) { r.API.Drop(fakenode.PodOf("web")) }
	for _, test := range []struct {
		name   string
		happen func(*fakenode.Node)
		want   after
	}{
		{"still ours: go on", func(*fakenode.Node) {}, goesOn},
		{"gone, pod lives: recreate", func(r *fakenode.Node) { r.API.Drop(byOther) }, goesOn},
		{"gone, pod gone: fence", func(r *fakenode.Node) { r.API.Drop(byOther); unwanted(r) }, after{leases: []string{}}},
		{"gone, and a claim was heard: fence, delete the pod", func(r *fakenode.Node) {
			r.API.Drop(byOther)
			r.Kernel.Claimed(fakenode.Key("10.0.0.2"), 1<<40)
		}, after{leases: []string{}}},
		{"somebody else's: fence, delete the pod", func(r *fakenode.Node) { r.Replace(byOther) }, after{leases: []string{"10.0.0.2 Bound"}}},
		{"somebody else's, pod gone: fence", func(r *fakenode.Node) { r.Replace(byOther); unwanted(r) }, after{leases: []string{"10.0.0.2 Bound"}}},
		{"quarantined: fence, delete the pod", func(r *fakenode.Node) {
			r.Replace(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodTerminating)))
		}, after{leases: []string{"10.0.0.2 Quarantined"}}},
		{"set aside because our pod answered: rebind", func(r *fakenode.Node) {
			r.Replace(fakenode.Held("10.0.0.2", func(s *v1alpha1.IPLeaseSpec) {
				s.State, s.Reason, s.Holder = v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, nil
				s.Conflict = &v1alpha1.Conflict{MAC: fakenode.MacOf("/netns/c-u1").String(), Source: "probe"}
			}))
		}, goesOn},
		{"the API server is away: go on, ask later", func(r *fakenode.Node) { r.API.Away = true },
			after{speaks: true, journalled: true, podExists: true, leases: []string{"10.0.0.2 Bound"}, undecided: true}},
		{"lost, and the pod cannot be asked about: fence, ask later", func(r *fakenode.Node) {
			r.Replace(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone)))
			r.Recovery.Reader = noPods{r.API}
		}, after{journalled: true, podExists: true, leases: []string{"10.0.0.2 Quarantined"}, undecided: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
			slot := r.SlotOf(web)
			r.Restart()
			test.happen(r)
			if test.want.undecided {
				r.Attachments.Pending.Add(web.Attachment)
				left, err := r.Recovery.Resume(t.Context(), attachment.AskTimeout)
				check.That(t, left == 1 && err != nil, "left %d, %v", left, err)
			} else {
				r.Settle()
			}
			r.API.SetAway(false)
			_, journalled := r.Attachments.Get(web.ContainerID, web.Interface)
			speaks := len(r.Kernel.Speakers(fakenode.Key("10.0.0.2"))) == 1 && !r.Kernel.IsDead(slot)
			check.That(t, speaks == test.want.speaks && journalled == test.want.journalled, "speaks %v, journalled %v", speaks, journalled)
			check.Equal(t, r.HasPod("web"), test.want.podExists, "pod exists:")
			r.Want(test.want.leases...)
			if test.want.speaks && !test.want.undecided {
				r.HoldsWhatTheJournalSays(web)
				check.Equal(t, r.SlotOf(web), slot, "slot")
				check.That(t, !r.FreeSlots()[slot], "the slot is free for the next pod")
			}
		})
	}
}

// While another node probes an address whose record was lost, it has the lease,
// and the pod that will answer it must not be fenced for that.
func TestALivingPodIsNotFencedWhileAnotherNodeProbesItsAddress(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.Replace(fakenode.Held("10.0.0.2"))
	r.Recovery.Changed("10.0.0.2")
	left, err := r.Recovery.Resume(t.Context(), attachment.AskTimeout)
	check.Must(t, left == 1 && errors.Is(err, recovery.ErrDisputed) && r.Speaks(web, "10.0.0.2"), "left %d, %v", left, err)
	// The other node heard the pod.
	r.Replace(fakenode.Held("10.0.0.2", func(s *v1alpha1.IPLeaseSpec) {
		s.State, s.Reason, s.Holder = v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, nil
		s.Conflict = &v1alpha1.Conflict{MAC: fakenode.MacOf(web.NetNS).String(), Source: "probe"}
	}))
	r.Settle()
	r.HoldsWhatTheJournalSays(web)
	check.Equal(t, r.Recovery.Disputes(), 0, "disputes left:")
}

func TestAClaimEndsADisputeAtOnce(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	slot := r.SlotOf(web)
	r.Replace(fakenode.Held("10.0.0.2"))
	r.Kernel.Claimed(fakenode.Key("10.0.0.2"), 1<<40)
	r.Fenced(fakenode.ParentIndex, netip.MustParseAddr("10.0.0.2"))
	left, err := r.Recovery.Resume(t.Context(), attachment.AskTimeout)
	check.Must(t, left == 0 && err == nil && r.Kernel.IsDead(slot), "left %d, %v", left, err)
}

func TestAPodThatLostItsAddressIsDeletedAlsoWhenTheFirstTryFails(t *testing.T) {
	r, _ := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.Replace(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone)))
	client := r.Recovery.Client
	r.Recovery.Client = undeletable{client}
	r.Recovery.Changed("10.0.0.2")
	left, err := r.Recovery.Resume(t.Context(), attachment.AskTimeout)
	check.Must(t, left == 1 && err != nil, "left %d, %v", left, err)
	r.Recovery.Client = client
	r.Settle()
	check.That(t, !r.HasPod("web"), "the mute pod stays")
}

func TestOneCallFailsForAllWhileTheAPIServerIsAway(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	for _, uid := range []string{"u1", "u2", "u3"} {
		r.MustAdd(r.Pod(uid, uid))
	}
	r.Restart()
	for _, e := range r.Attachments.All() {
		r.Attachments.Pending.Add(e.Attachment())
	}
	r.API.SetAway(true)
	before := r.API.Calls["get"]
	left, err := r.Recovery.Resume(t.Context(), attachment.AskTimeout)
	check.That(t, left == 3 && err != nil && r.API.Calls["get"] == before+1, "left %d, %v after %d calls", left, err, r.API.Calls["get"]-before)
}

func TestTheWorkerResumesWithinASecondOfTheAPIServersReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
		r.Restart()
		r.API.SetAway(true)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Recovery.Run(ctx) }()
		r.MustDel(web)
		r.Eventually("the worker tries", func() bool { return r.Calls("get") >= 5 })
		r.API.SetAway(false)
		start := time.Now()
		r.Eventually("the lease is freed", func() bool { return len(r.Names()) == 0 })
		check.That(t, time.Since(start) <= recovery.RetryMost+10*time.Millisecond, "took %s", time.Since(start))
		stop()
		check.Is(t, <-done, nil, "got")
	})
}

func TestAnAuditFindsWhatNoEventTold(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	a, b := r.Pod("a", "u1"), r.Pod("b", "u2")
	r.MustAdd(a)
	r.MustAdd(b)
	r.API.Drop(fakenode.Held("10.0.0.3"))
	r.Recovery.Suspect(t.Context())
	todo := r.Attachments.Pending.Take()
	check.That(t, len(todo) == 1 && todo[b.Attachment], "suspects %v", todo)
}

func TestRestoreTakesUpTheOthersWhereOneInterfaceIsGone(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	gone, lives := r.Pod("a", "u1"), r.Pod("b", "u2")
	r.MustAdd(gone)
	r.MustAdd(lives)
	r.Kernel.Unplug(gone.NetNS, gone.Interface)
	// The pins were lost, and the parent of one with its interface.
	r.Kernel.Guards, r.Kernel.Enforced = map[uint32]string{}, map[bpf.Key]bpf.Lease{}
	check.Is(t, r.Recovery.Restore(), bpf.ErrNoDevice, "got")
	r.Recovery.OpenSegment = func(int) (acquire.Segment, error) { return nil, bpf.ErrNoDevice }
	check.Is(t, r.Recovery.Restore(), bpf.ErrNoDevice, "got")
	check.That(t, r.Speaks(lives, "10.0.0.3"), "the living pod is mute")
	r.Settle()
	r.Want("10.0.0.2 Bound", "10.0.0.3 Bound")
	r.MustDel(gone)
	r.Want("10.0.0.3 Bound")
}

// The slot is killed before the pod is gone. Recorded again, once its address is
// free, the pod would stay Ready and mute.
func TestAPodThatWasMutedIsNotRecordedAgain(t *testing.T) {
	for name, fails := range map[string]func(*fakenode.Node){
		"it could not be asked about":  func(r *fakenode.Node) { r.Recovery.Reader = noPods{r.API} },
		"it could not be deleted":      func(r *fakenode.Node) { r.Recovery.Client = noDeletes{r.API} },
		"and its agent has died since": func(r *fakenode.Node) { r.Recovery.Client = noDeletes{r.API} },
	} {
		t.Run(name, func(t *testing.T) {
			r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
			r.Replace(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone)))
			fails(r)
			r.Attachments.Pending.Add(web.Attachment)
			left, err := r.Recovery.Resume(t.Context(), attachment.AskTimeout)
			check.That(t, left == 1 && err != nil, "left %d, %v", left, err)
			r.API.Drop(fakenode.Held("10.0.0.2")) // verified, and free
			if r.Recovery.Reader, r.Recovery.Client = r.API, r.API; strings.Contains(name, "died") {
				r.Restart()
			}
			r.Settle()
			check.That(t, !r.HasPod("web"), "the pod stays, speaks: %v", r.Speaks(web, "10.0.0.2"))
			r.Want()
		})
	}
}

// noDeletes is an API server that deletes no pod.
type noDeletes struct{ *fakenode.API }

func (noDeletes) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return &fakenode.NetError{}
}

// noPods cannot be asked about pods.
type noPods struct{ *fakenode.API }

func (n noPods) Get(ctx context.Context, name types.NamespacedName, o client.Object, opts ...client.GetOption) error {
	if _, pod := o.(*corev1.Pod); pod {
		return apierrors.NewForbidden(schema.GroupResource{}, name.Name, fmt.Errorf("not now"))
	}
	return n.API.Get(ctx, name, o, opts...)
}

// undeletable fails to delete.
type undeletable struct{ client.Writer }

func (undeletable) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("not now"))
}

// configHash is the UID of a static pod's life.
const configHash = "0f343b0931126a20f133d67c2b018a3b"

// mirror makes a pod the mirror of a static pod.
func mirror(p *corev1.Pod) {
	p.Annotations = map[string]string{"kubernetes.io/config.hash": configHash, corev1.MirrorPodAnnotationKey: configHash}
}

// static makes a static pod's mirror and returns the ADD for its sandbox.
func static(r *fakenode.Node, mirrorUID string) agentapi.AddRequest {
	web := r.Pod("web", mirrorUID, mirror)
	web.Pod.UID = configHash
	return web
}

func TestAStaticPodGoesOnWhenItsMirrorIsMadeAgain(t *testing.T) {
	for name, happen := range map[string]func(*fakenode.Node){
		"its lease is there": func(*fakenode.Node) {},
		"its lease is lost":  func(r *fakenode.Node) { r.API.Drop(fakenode.Held("10.0.0.2")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			web := static(r, "mirror-1")
			r.MustAdd(web)
			e, _ := r.Attachments.Get(web.ContainerID, web.Interface)
			check.Equal(t, e.PodUID, configHash, "the journal says pod UID")
			static(r, "mirror-2")
			happen(r)
			r.Restart()
			r.Settle()
			check.That(t, r.Speaks(web, "10.0.0.2"), "the static pod is mute")
			r.HoldsWhatTheJournalSays(web)
			check.Equal(t, r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Holder.PodUID, configHash, "the lease is of pod UID")
		})
	}
}

// lost lets a pod of this node lose its address, and returns the warnings that it got for it.
func lost(r *fakenode.Node, web agentapi.AddRequest) string {
	r.T.Helper()
	r.MustAdd(web)
	r.Replace(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone)))
	r.Settle()
	var said strings.Builder
	for len(r.Recorder.Events) > 0 {
		said.WriteString(<-r.Recorder.Events + "\n")
	}
	return said.String()
}

func TestAStaticPodThatLostItsAddressIsFencedAndPeopleAreTold(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	said := lost(r, static(r, "mirror-1"))
	check.None(t, r.Kernel.Speakers(fakenode.Key("10.0.0.2")), "slots of the static pod that may speak for an address that it lost:")
	check.That(t, strings.Contains(said, "static pod") && !strings.Contains(said, "fenced and deleted"), "said %q", said)
	check.That(t, r.Calls("delete") == 0, "the mirror pod was deleted, which does not end a static pod")
}

// The annotation alone is anybody's to write: it makes no static pod.
func TestAPodThatCallsItselfStaticIsDeletedAsAnyOther(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	check.Says(t, lost(r, r.Pod("web", "u1", fakenode.Annotated("kubernetes.io/config.hash", configHash))), "fenced and deleted")
	check.That(t, !r.HasPod("web"), "the mute pod stays")
}

func TestThePodThatCameAfterALoserIsNotDeleted(t *testing.T) {
	r, _ := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	e, address, _ := r.Attachments.Holder(fakenode.ParentIndex, netip.MustParseAddr("10.0.0.2"))
	r.Pod("web", "u2")
	check.Is(t, r.Recovery.DeletePod(t.Context(), &e, address), nil, "got")
	next := &corev1.Pod{}
	err := r.Reader.Get(t.Context(), fakenode.ClientObjectKey("web"), next)
	check.That(t, err == nil && next.UID == types.UID("u2"), "the next pod of that name: %v, %v", next.UID, err)
}
