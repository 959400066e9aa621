package holder

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

var two = netip.MustParseAddr("10.0.0.2")

func retained(s *v1alpha1.IPLeaseSpec) {
	s.State, s.Holder.ContainerID = v1alpha1.StateRetained, ""
}

func TestAStatefulSetPodTakesItsAddressOver(t *testing.T) {
	byNode := func(s *v1alpha1.IPLeaseSpec) { s.Previous.Node, s.Previous.Session = thisNode, thisSession }
	rebooted := func(s *v1alpha1.IPLeaseSpec) { s.Previous.Node, s.Previous.Session = thisNode, "node-1/boot-0" }
	gone := func(s *v1alpha1.IPLeaseSpec) {
		s.Previous.Reason, s.Reason = v1alpha1.ReasonNodeGone, v1alpha1.ReasonUnverified
	}
	successorGone := func(s *v1alpha1.IPLeaseSpec) { s.Reason = v1alpha1.ReasonNodeGone }
	aside := quarantined(v1alpha1.ReasonPodTerminating)
	for _, test := range []struct {
		name    string
		lease   *v1alpha1.IPLease
		verdict segment.Verdict
		// safe: the pod gets the address. Otherwise code 11 and Quarantined again.
		safe bool
	}{
		{"retained, and nobody can be heard", held("10.0.0.2", retained), segment.Unknown, true},
		{"retained, and answered", held("10.0.0.2", retained), segment.Answered, false},
		{"quarantined and fenced", held("10.0.0.2", aside), segment.Fenced, true},
		{"quarantined and silent", held("10.0.0.2", aside), segment.Silent, true},
		{"quarantined and unknown (R2)", held("10.0.0.2", aside), segment.Unknown, false},
		{"quarantined and answered", held("10.0.0.2", aside), segment.Answered, false},
		{"quarantined, of this session", held("10.0.0.2", aside, byNode), segment.Unknown, true},
		{"quarantined, of this node's last boot (R8)", held("10.0.0.2", aside, rebooted), segment.Unknown, false},
		{"quarantined, and only the end of another take-over's node asserted", held("10.0.0.2", aside, successorGone), segment.Unknown, false},
		{"unverified, and the node's end asserted before", held("10.0.0.2", aside, gone), segment.Unknown, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2-10.0.0.9"))
			r.api.put(test.lease)
			r.wire.verdicts[two] = test.verdict
			web := r.pod("web-0", "u1", ofStatefulSet)
			if !test.safe {
				r.refused(agentapi.CodeTryAgainLater, web)
				l := r.lease("10.0.0.2", v1alpha1.StateQuarantined)
				if l.Spec.Reason != v1alpha1.ReasonUnverified || l.Spec.Message == "" || l.Spec.NodeName != thisNode {
					t.Errorf("lease %+v", l.Spec)
				}
				if p := test.lease.Spec.Previous; p != nil && (l.Spec.Previous == nil || l.Spec.Previous.Node != p.Node) {
					t.Errorf("previous %v, want %v", l.Spec.Previous, p)
				}
				r.want("10.0.0.2 Quarantined") // never another address
				return
			}
			if got := r.add(web); got[0] != "10.0.0.2" {
				t.Fatalf("got %v", got)
			}
			l := r.lease("10.0.0.2", v1alpha1.StateBound)
			if l.Spec.Previous != nil || l.Spec.Holder.PodUID != "u1" || l.Spec.NodeName != thisNode {
				t.Errorf("lease %+v", l.Spec)
			}
			if v := r.wire.verification; v.Claim.PreviousMAC.String() != "02:00:00:00:02:01" || v.Claim.Token == 0 {
				t.Errorf("claimed as %+v", v.Claim)
			}
			if !r.speaks(web, "10.0.0.2") {
				t.Error("the pod is mute")
			}
		})
	}
}

func TestATakeOverInModeObserveOnlyReports(t *testing.T) {
	r := newRig(t, pool("v4", "10.0.0.0/24", v1alpha1.ModeObserve, "10.0.0.2"))
	r.api.put(held("10.0.0.2", quarantined(v1alpha1.ReasonPodTerminating)))
	r.wire.verdicts[two] = segment.Answered
	r.add(r.pod("web-0", "u1", ofStatefulSet))
	if l := r.lease("10.0.0.2", v1alpha1.StateBound); l.Spec.Previous != nil {
		t.Errorf("lease %+v", l.Spec)
	}
}

func TestAnAddressBoundElsewhereIsWaitedFor(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	r.api.put(held("10.0.0.2"))
	web := r.pod("web-0", "u1", ofStatefulSet)
	if text := r.refused(agentapi.CodeTryAgainLater, web); !strings.Contains(text, "node n2") {
		t.Error(text)
	}
	r.want("10.0.0.2 Bound")

	// The controller takes it while the next ADD waits.
	looks := 0
	r.api.before = func(verb, name string) error {
		if looks++; verb == "get" && looks == 1 {
			l := r.api.objects[keyFor(held("10.0.0.2"), clientKey(name))].DeepCopyObject().(*v1alpha1.IPLease)
			quarantined(v1alpha1.ReasonPodGone)(&l.Spec)
			r.api.store(keyFor(l, clientKey(name)), l)
		}
		return nil
	}
	r.wire.verdicts[two] = segment.Fenced
	if got := r.add(web); got[0] != "10.0.0.2" {
		t.Fatalf("got %v", got)
	}
}

func TestAKeptAddressWhosePoolDoesNotServeTheNodeIsSaidSo(t *testing.T) {
	elsewhere := v4("10.0.0.2")
	elsewhere.Spec.NodeName = []string{"n2"}
	for _, row := range []struct {
		name string
		pool *v1alpha1.IPPool
		// pod and namespace are their annotations.
		pod, namespace map[string]string
		says           string
	}{
		{"it is for another node", elsewhere, nil, nil, "its nodeName [n2] does not list node n1"},
		{"it is for another node, and the pod names it", elsewhere, namingPools("v4", "other"), nil, "its nodeName [n2] does not list node n1"},
		{"the namespace names another one", v4("10.0.0.2"), nil, map[string]string{"ipam.fenceline.io/default-ipv4-ippool": `["other"]`},
			"it is none of the pools of the annotations of namespace shop"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, row.pool, pool("other", "10.1.0.0/24", v1alpha1.ModeEnforce, "10.1.0.2"))
			r.api.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: row.namespace}})
			r.api.put(held("10.0.0.2", retained))
			web := r.pod("web-0", "u1", ofStatefulSet, func(p *corev1.Pod) { p.Annotations = row.pod })
			says := "10.0.0.2 is kept for pod shop/web-0, but its pool v4 does not serve the pod on node n1: " + row.says +
				"; delete lease 10.0.0.2 to give the address up"
			if text := r.refused(agentapi.CodeNoPool, web); !strings.Contains(text, says) {
				t.Errorf("it says %q, want %q", text, says)
			}
			r.want("10.0.0.2 Retained")
			// Only who gives the address up gets another one.
			r.api.drop(held("10.0.0.2"))
			if got := r.add(web); got[0] != "10.1.0.2" {
				t.Errorf("got %v", got)
			}
		})
	}
}

func namingPools(names ...string) map[string]string {
	return map[string]string{"ipam.fenceline.io/ippool": `{"ipv4":["` + strings.Join(names, `","`) + `"]}`}
}

// Who writes other pools into the pods' template has changed his mind about the address.
func TestAPodWhoseAnnotationHasLeftAPoolGetsAnAddressOfAnother(t *testing.T) {
	other := pool("other", "10.1.0.0/24", v1alpha1.ModeEnforce, "10.1.0.2")
	for _, row := range []struct {
		name  string
		lease *v1alpha1.IPLease
		kept  string // with the new address
	}{
		{"retained", held("10.0.0.2", retained), "10.0.0.2 Retained"},
		{"quarantined", held("10.0.0.2", quarantined(v1alpha1.ReasonPodTerminating)), "10.0.0.2 Quarantined"},
		{"bound to the pod before, on a node that is cut off", held("10.0.0.2"), "10.0.0.2 Bound"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2"), other)
			r.api.put(row.lease)
			web := r.pod("web-0", "u1", ofStatefulSet, func(p *corev1.Pod) { p.Annotations = namingPools("other") })
			if got := r.add(web); got[0] != "10.1.0.2" {
				t.Fatalf("got %v", got)
			}
			r.want(row.kept, "10.1.0.2 Bound") // its end is the controller's
			const says = "Normal AddressLeft 10.1.0.2 takes the place of 10.0.0.2: pool v4 is none of the pools of annotation ipam.fenceline.io/ippool of pod shop/web-0 any more"
			if told := r.told(); !slices.Contains(told, says) {
				t.Errorf("events %q, want %q", told, says)
			}
			r.del(web)
			if got := r.add(r.pod("web-0", "u2", ofStatefulSet, func(p *corev1.Pod) { p.Annotations = namingPools("other") })); got[0] != "10.1.0.2" {
				t.Errorf("the next pod got %v", got)
			}
		})
	}
}

func TestANewerSandboxOfAPodBindsItsAddressAgain(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	older := r.pod("web", "u1")
	r.add(older)
	newer := older
	newer.ContainerID, newer.NetNS = "c-newer", "/netns/c-newer"
	if got := r.add(newer); got[0] != "10.0.0.2" {
		t.Fatalf("got %v", got)
	}
	if !r.kernel.isDead(r.slotOf(older)) || !r.speaks(newer, "10.0.0.2") {
		t.Error("the older sandbox may speak, or the newer may not")
	}
	r.del(older)
	if l := r.lease("10.0.0.2", v1alpha1.StateBound); l.Spec.Holder.ContainerID != "c-newer" {
		t.Errorf("lease of %v", l.Spec.Holder)
	}
	r.settle()
	r.want("10.0.0.2 Bound")
	r.del(newer)
	r.want()
}

func TestAVerifierDoesNotKillTheSlotOfATakeOver(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	r.api.put(held("10.0.0.2", quarantined(v1alpha1.ReasonPodGone)))
	r.wire.verdicts[two] = segment.Fenced
	web := r.pod("web-0", "u1", ofStatefulSet)
	store, read, taken, killed := r.Leases, make(chan struct{}), make(chan struct{}), make(chan error)
	// The verifier has read the Quarantined lease, and is slow to kill.
	r.Leases = slowGet{store, func() {
		close(read)
		select {
		case <-taken:
		case <-time.After(200 * time.Millisecond): // the lock keeps the take-over waiting
		}
	}}
	go func() {
		_, _, err := r.KillHolder(t.Context(), "10.0.0.2")
		killed <- err
	}()
	<-read
	r.add(web)
	close(taken)
	if err := <-killed; err != nil {
		t.Error(err)
	}
	if !r.speaks(web, "10.0.0.2") {
		t.Error("the verifier has killed the new holder")
	}
}

// An agent that dies between the take-over's write and the end of the older
// sandbox must end it before the address is free, whichever it resumes first.
func TestTheUndoOfATakeOverEndsTheOlderSandboxFirst(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	older := r.pod("web", "u1")
	r.add(older)
	newer := older
	newer.ContainerID, newer.NetNS = "c-newer", "/netns/c-newer"
	r.death.did, r.death.before = nil, "kill"
	if err := add(r, newer); err == nil || !slices.Contains(r.death.did, "update 10.0.0.2") {
		t.Fatalf("died after %v, %v", r.death.did, err)
	}
	r.restart()
	if err := r.resumeEntry(t.Context(), attachment{newer.ContainerID, newer.Interface}, askTimeout); err != nil {
		t.Error(err)
	}
	r.want() // the rig has watched that nobody may speak for it
}

// The worker sees that the first has gone to the newer sandbox while the second is
// still the older one's.
func TestANewerSandboxBindsBothItsAddressesAgain(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"), pool("v6", "fd00::/64", v1alpha1.ModeEnforce, "fd00::2-fd00::9"))
	older := r.pod("web", "u1")
	r.add(older)
	newer := older
	newer.ContainerID, newer.NetNS = "c-newer", "/netns/c-newer"
	r.wire.onClaim = func(c segment.Claim) {
		if c.Addr == two {
			r.pending.add(attachment{older.ContainerID, older.Interface})
			_, _ = r.resume(t.Context(), askTimeout)
		}
	}
	if got := r.add(newer); !slices.Equal(got, []string{"10.0.0.2", "fd00::2"}) {
		t.Errorf("got %v", got)
	}
	r.settle()
	if _, there := r.Journal.Get(older.ContainerID, older.Interface); there {
		t.Error("the older sandbox stays in the journal")
	}
}

// The annotation that had the pod leave the pool is gone, and the lease is not freed yet.
func TestOfTwoKeptAddressesTheOneThatServesIsTaken(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"), pool("other", "10.1.0.0/24", v1alpha1.ModeEnforce, "10.1.0.2"))
	r.api.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "shop", Annotations: map[string]string{"ipam.fenceline.io/default-ipv4-ippool": `["other"]`},
	}})
	r.api.put(held("10.0.0.2", quarantined(v1alpha1.ReasonPodGone)))
	r.api.put(held("10.1.0.2", retained, func(s *v1alpha1.IPLeaseSpec) { s.Pool = "other" }))
	if got := r.add(r.pod("web-0", "u1", ofStatefulSet)); got[0] != "10.1.0.2" {
		t.Errorf("got %v", got)
	}
}
