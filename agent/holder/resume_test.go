package holder

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
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
	byOther := held("10.0.0.2")
	unwanted := func(r *rig) { r.api.drop(podOf("web")) }
	for _, test := range []struct {
		name   string
		happen func(*rig)
		want   after
	}{
		{"still ours: go on", func(*rig) {}, goesOn},
		{"gone, pod lives: recreate", func(r *rig) { r.api.drop(byOther) }, goesOn},
		{"gone, pod gone: fence", func(r *rig) { r.api.drop(byOther); unwanted(r) }, after{leases: []string{}}},
		{"gone, and a claim was heard: fence, delete the pod", func(r *rig) {
			r.api.drop(byOther)
			r.kernel.claimed(key("10.0.0.2"), 1<<40)
		}, after{leases: []string{}}},
		{"somebody else's: fence, delete the pod", func(r *rig) { r.replace(byOther) }, after{leases: []string{"10.0.0.2 Bound"}}},
		{"somebody else's, pod gone: fence", func(r *rig) { r.replace(byOther); unwanted(r) }, after{leases: []string{"10.0.0.2 Bound"}}},
		{"quarantined: fence, delete the pod", func(r *rig) {
			r.replace(held("10.0.0.2", quarantined(v1alpha1.ReasonPodTerminating)))
		}, after{leases: []string{"10.0.0.2 Quarantined"}}},
		{"set aside because our pod answered: rebind", func(r *rig) {
			r.replace(held("10.0.0.2", func(s *v1alpha1.IPLeaseSpec) {
				s.State, s.Reason, s.Holder = v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, nil
				s.Conflict = &v1alpha1.Conflict{MAC: macOf("/netns/c-u1").String(), Source: "probe"}
			}))
		}, goesOn},
		{"the API server is away: go on, ask later", func(r *rig) { r.api.away = true },
			after{speaks: true, journalled: true, podExists: true, leases: []string{"10.0.0.2 Bound"}, undecided: true}},
		{"lost, and the pod cannot be asked about: fence, ask later", func(r *rig) {
			r.replace(held("10.0.0.2", quarantined(v1alpha1.ReasonPodGone)))
			r.Reader = noPods{r.api}
		}, after{journalled: true, podExists: true, leases: []string{"10.0.0.2 Quarantined"}, undecided: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2"))
			web := r.pod("web", "u1")
			r.add(web)
			slot := r.slotOf(web)
			r.restart()
			test.happen(r)
			if test.want.undecided {
				r.pending.add(attachment{web.ContainerID, web.Interface})
				if left, err := r.resume(t.Context(), askTimeout); left != 1 || err == nil {
					t.Errorf("left %d, %v", left, err)
				}
			} else {
				r.settle()
			}
			r.api.setAway(false)
			_, journalled := r.Journal.Get(web.ContainerID, web.Interface)
			speaks := len(r.kernel.speakers(key("10.0.0.2"))) == 1 && !r.kernel.isDead(slot)
			_, podExists := r.api.objects[keyFor(podOf("web"), clientObjectKey("web"))]
			if speaks != test.want.speaks || journalled != test.want.journalled {
				t.Errorf("speaks %v, journalled %v", speaks, journalled)
			}
			if wanted := test.want.podExists; podExists != wanted {
				t.Errorf("pod exists: %v", podExists)
			}
			r.want(test.want.leases...)
			if test.want.speaks && !test.want.undecided {
				r.holdsWhatTheJournalSays(web)
			}
		})
	}
}

func podOf(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
}

// replace puts a lease in place of another.
func (r *rig) replace(l *v1alpha1.IPLease) {
	r.api.drop(l)
	r.api.put(l.DeepCopy())
}

// holdsWhatTheJournalSays compares API, journal and kernel for one attachment.
func (r *rig) holdsWhatTheJournalSays(request agentapi.AddRequest) {
	r.t.Helper()
	e, ok := r.Journal.Get(request.ContainerID, request.Interface)
	if !ok || e.Phase != journal.Bound {
		r.t.Fatalf("journal %+v", e)
	}
	for _, address := range e.Addresses {
		l := r.lease(address.LeaseName, v1alpha1.StateBound)
		installed, _, _ := r.kernel.Lease(keyOf(&e, address))
		if string(l.UID) != address.LeaseUID || !holds(l, thisNode, &e) || installed.Token != address.Token || installed.Slot != e.Slot {
			r.t.Errorf("lease %s of %+v, journal %+v, kernel %+v", l.UID, l.Spec.Holder, address, installed)
		}
	}
}

// While another node probes an address whose record was lost, it has the lease,
// and the pod that will answer it must not be fenced for that.
func TestALivingPodIsNotFencedWhileAnotherNodeProbesItsAddress(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.add(web)
	r.replace(held("10.0.0.2"))
	r.Changed("10.0.0.2")
	if left, err := r.resume(t.Context(), askTimeout); left != 1 || !errors.Is(err, errDisputed) || !r.speaks(web, "10.0.0.2") {
		t.Fatalf("left %d, %v", left, err)
	}
	// The other node heard the pod.
	r.replace(held("10.0.0.2", func(s *v1alpha1.IPLeaseSpec) {
		s.State, s.Reason, s.Holder = v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, nil
		s.Conflict = &v1alpha1.Conflict{MAC: macOf(web.NetNS).String(), Source: "probe"}
	}))
	r.settle()
	r.holdsWhatTheJournalSays(web)
	if len(r.disputed) != 0 {
		t.Errorf("disputes left: %v", r.disputed)
	}
}

func TestAClaimEndsADisputeAtOnce(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.add(web)
	slot := r.slotOf(web)
	r.replace(held("10.0.0.2"))
	r.kernel.claimed(key("10.0.0.2"), 1<<40)
	r.Fenced(key("10.0.0.2"))
	if left, err := r.resume(t.Context(), askTimeout); left != 0 || err != nil || !r.kernel.isDead(slot) {
		t.Fatalf("left %d, %v", left, err)
	}
}

func TestAPodThatLostItsAddressIsDeletedAlsoWhenTheFirstTryFails(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.add(web)
	r.replace(held("10.0.0.2", quarantined(v1alpha1.ReasonPodGone)))
	client := r.Client
	r.Client = undeletable{client}
	r.Changed("10.0.0.2")
	if left, err := r.resume(t.Context(), askTimeout); left != 1 || err == nil {
		t.Fatalf("left %d, %v", left, err)
	}
	r.Client = client
	r.settle()
	if _, exists := r.api.objects[keyFor(podOf("web"), clientObjectKey("web"))]; exists {
		t.Error("the mute pod stays")
	}
}

func TestOneCallFailsForAllWhileTheAPIServerIsAway(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	for _, uid := range []string{"u1", "u2", "u3"} {
		r.add(r.pod(uid, uid))
	}
	r.restart()
	for _, e := range r.Journal.All() {
		r.pending.add(attachmentOf(e))
	}
	r.api.setAway(true)
	before := r.api.calls["get"]
	if left, err := r.resume(t.Context(), askTimeout); left != 3 || err == nil || r.api.calls["get"] != before+1 {
		t.Errorf("left %d, %v after %d calls", left, err, r.api.calls["get"]-before)
	}
}

func TestTheWorkerResumesWithinASecondOfTheAPIServersReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, v4("10.0.0.2"))
		web := r.pod("web", "u1")
		r.add(web)
		r.restart()
		r.api.setAway(true)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		r.del(web)
		r.eventually("the worker tries", func() bool { return r.calls("get") >= 5 })
		r.api.setAway(false)
		start := time.Now()
		r.eventually("the lease is freed", func() bool { return len(r.names()) == 0 })
		if took := time.Since(start); took > retryMost+10*time.Millisecond {
			t.Errorf("took %s", took)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAnAuditFindsWhatNoEventTold(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	a, b := r.pod("a", "u1"), r.pod("b", "u2")
	r.add(a)
	r.add(b)
	r.api.drop(held("10.0.0.3"))
	r.suspect(t.Context())
	todo := r.pending.take()
	if len(todo) != 1 || !todo[attachment{b.ContainerID, b.Interface}] {
		t.Errorf("suspects %v", todo)
	}
}

func TestRestoreTakesUpTheOthersWhereOneInterfaceIsGone(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	gone, lives := r.pod("a", "u1"), r.pod("b", "u2")
	r.add(gone)
	r.add(lives)
	r.kernel.unplug(gone.NetNS, gone.Interface)
	// The pins were lost, and the parent of one with its interface.
	r.kernel.guards, r.kernel.leases = map[uint32]string{}, map[bpf.Key]bpf.Lease{}
	if err := r.Restore(); !errors.Is(err, bpf.ErrNoDevice) {
		t.Errorf("got %v", err)
	}
	r.OpenSegment = func(int) (Segment, error) { return nil, bpf.ErrNoDevice }
	if err := r.Restore(); !errors.Is(err, bpf.ErrNoDevice) {
		t.Errorf("got %v", err)
	}
	if !r.speaks(lives, "10.0.0.3") {
		t.Error("the living pod is mute")
	}
	r.settle()
	r.want("10.0.0.2 Bound", "10.0.0.3 Bound")
	r.del(gone)
	r.want("10.0.0.3 Bound")
}

// The slot is killed before the pod is gone. Recorded again, once its address is
// free, the pod would stay Ready and mute.
func TestAPodThatWasMutedIsNotRecordedAgain(t *testing.T) {
	for name, fails := range map[string]func(*rig){
		"it could not be asked about":  func(r *rig) { r.Reader = noPods{r.api} },
		"it could not be deleted":      func(r *rig) { r.Client = noDeletes{r.api} },
		"and its agent has died since": func(r *rig) { r.Client = noDeletes{r.api} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2"))
			web := r.pod("web", "u1")
			r.add(web)
			r.replace(held("10.0.0.2", quarantined(v1alpha1.ReasonPodGone)))
			fails(r)
			r.pending.add(attachment{web.ContainerID, web.Interface})
			if left, err := r.resume(t.Context(), askTimeout); left != 1 || err == nil {
				t.Errorf("left %d, %v", left, err)
			}
			r.api.drop(held("10.0.0.2")) // verified, and free
			if r.Reader, r.Client = r.api, r.api; strings.Contains(name, "died") {
				r.restart()
			}
			r.settle()
			if _, podExists := r.api.objects[keyFor(podOf("web"), clientObjectKey("web"))]; podExists {
				t.Errorf("the pod stays, speaks: %v", r.speaks(web, "10.0.0.2"))
			}
			r.want()
		})
	}
}

// noDeletes is an API server that deletes no pod.
type noDeletes struct{ *memAPI }

func (noDeletes) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return &netError{}
}
