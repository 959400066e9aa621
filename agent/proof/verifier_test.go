// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

var (
	acked    = segment.Evidence{Acked: true}
	silent   = segment.Evidence{Heard: true, Canary: netip.MustParseAddr("10.0.0.1"), Asked: 1}
	deaf     = segment.Evidence{}
	answered = segment.Evidence{Answer: segment.Answer{Conflict: true, MAC: strangerMAC}}
)

func TestAVerificationSettlesItsLease(t *testing.T) {
	outOfService := func(s *v1alpha1.IPLeaseSpec) { s.Previous.Reason = v1alpha1.ReasonOutOfService }
	nodeGone := func(s *v1alpha1.IPLeaseSpec) {
		s.Reason, s.Previous.Reason = v1alpha1.ReasonNodeGone, v1alpha1.ReasonNodeGone
	}
	// What the controller makes of a take-over that was not confirmed, on a node that is gone.
	successorGone := func(s *v1alpha1.IPLeaseSpec) { s.Reason = v1alpha1.ReasonNodeGone }
	// What the controller makes of a Warm lease of a node that is gone: nobody ever held it.
	keptReady := func(s *v1alpha1.IPLeaseSpec) {
		s.Reason, s.Holder = v1alpha1.ReasonNodeGone, nil
		s.Previous = &v1alpha1.PreviousHolder{Node: "n2", Session: "s", Reason: v1alpha1.ReasonNodeGone}
	}
	unguarded := func(s *v1alpha1.IPLeaseSpec) { s.Previous.PodUID = "p" }
	for _, test := range []struct {
		name     string
		lease    *v1alpha1.IPLease
		dead     bool
		evidence segment.Evidence
		// want is the state after, empty: free.
		want   v1alpha1.LeaseState
		reason v1alpha1.LeaseReason
	}{
		{"fenced", quarantined(), false, acked, "", ""},
		{"silent", quarantined(), false, silent, "", ""},
		{"silent, of a holder without a guard (R1)", quarantined(unguarded), false, silent, v1alpha1.StateQuarantined, v1alpha1.ReasonPodTerminating},
		{"deaf (R2)", quarantined(), false, deaf, v1alpha1.StateQuarantined, v1alpha1.ReasonPodTerminating},
		{"answered", quarantined(), false, answered, v1alpha1.StateQuarantined, v1alpha1.ReasonConflict},
		{"the slot of this node is dead", quarantined(), true, deaf, "", ""},
		{"the node is out of service", quarantined(outOfService), false, deaf, "", ""},
		{"the node is gone", quarantined(nodeGone), false, deaf, "", ""},
		{"the node of a successor is gone, which has not spoken", quarantined(successorGone), false, deaf, v1alpha1.StateQuarantined, v1alpha1.ReasonNodeGone},
		{"kept ready by a node that is gone", quarantined(keptReady), false, deaf, "", ""},
		{"kept ready by a node that is gone, and somebody speaks", quarantined(keptReady), false, answered, v1alpha1.StateQuarantined, v1alpha1.ReasonConflict},
		{"of a StatefulSet, fenced", quarantined(static), false, acked, v1alpha1.StateRetained, ""},
		{"of a StatefulSet, deaf", quarantined(static), false, deaf, v1alpha1.StateQuarantined, v1alpha1.ReasonPodTerminating},
		{"a stranger that has left", quarantined(stranger), false, silent, "", ""},
		{"a stranger that stays", quarantined(stranger), false, answered, v1alpha1.StateQuarantined, v1alpha1.ReasonConflict},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, test.lease)
			r.dead, r.evidence = test.dead, test.evidence
			result := r.look()
			// R14: one line for each address that becomes free.
			waits := test.want == v1alpha1.StateQuarantined
			check.Equal(t, r.freed, map[bool]int{false: 1}[waits], "audit lines of a free address:")
			if test.want == "" {
				check.That(t, r.lease == nil && result.RequeueAfter == 0, "lease %+v, again after %s", r.lease, result.RequeueAfter)
				return
			}
			check.Must(t, r.lease != nil && r.lease.Spec.State == test.want && r.lease.Spec.Reason == test.reason, "lease %+v", r.lease)
			check.Equal(t, result.RequeueAfter > 0, waits, "%q, and it is verified again:", r.lease.Spec.Message)
			check.Equal(t, r.lease.Spec.Message != "", waits, "%q, and there is a message:", r.lease.Spec.Message)
		})
	}
}

// R15: the target of a migration takes the lease over itself, and its slot must live.
func TestAVerifierLeavesTheLeaseForWhichAPodOfItsNodeWaits(t *testing.T) {
	r := newRig(t, quarantined())
	r.evidence, r.awaited = acked, true
	r.look()
	check.That(t, r.killed == 0 && r.settled == 0, "killed %d, settled %d", r.killed, r.settled)
}

func TestR4NobodyIsClaimedAgainstWhoNeverWasAHolder(t *testing.T) {
	r := newRig(t, quarantined(stranger))
	r.look()
	check.Equal(t, r.asked[0].Claim.Mode, v1alpha1.ModeObserve, "a lease without predecessor was verified in mode")
	r = newRig(t, quarantined())
	r.look()
	c := r.asked[0].Claim
	check.That(t, c.Mode == v1alpha1.ModeEnforce && c.Token == 50 && c.PreviousMAC.String() == "02:00:00:00:00:01" && c.PreviousToken == 40,
		"a predecessor was claimed against as %+v", c)
}

func TestAPoolThatDoesNotEnforceDoesNotWait(t *testing.T) {
	r := newRig(t, quarantined())
	r.pool.Spec.ConflictDetection = &v1alpha1.ConflictDetection{Mode: v1alpha1.ModeObserve}
	r.look()
	check.That(t, r.lease == nil && len(r.asked) == 0, "lease %v, asked %v", r.lease, r.asked)
}

func TestAPoolThatIsGoneIsAsStrictAsAny(t *testing.T) {
	r := newRig(t, quarantined())
	r.pool = nil
	r.look()
	check.That(t, r.lease != nil && len(r.asked) == 1, "lease %v, asked %v", r.lease, r.asked)
}

// The controller assigns another verifier where the message says that this one cannot tell.
func TestAVerifierWithoutParentSaysSoOnTheLease(t *testing.T) {
	r := newRig(t, quarantined())
	r.opened = errors.New("node n1 knows no parent of pool v4")
	check.Equal(t, r.look().RequeueAfter, time.Second, "again after")
	l := r.lease.Spec
	check.That(t, l.State == v1alpha1.StateQuarantined && strings.Contains(l.Message, "knows no parent"), "lease %+v", l)
}

// The parent may be gone with the holder.
func TestADeadSlotIsProofAlsoWhereNoSegmentCanBeOpened(t *testing.T) {
	for _, dead := range []bool{true, false} {
		r := newRig(t, quarantined())
		r.dead, r.opened = dead, errors.New("node n1 knows no parent of pool v4")
		var verdicts []segment.Verdict
		r.Verified = func(v segment.Verdict) { verdicts = append(verdicts, v) }
		r.look()
		want := map[bool]segment.Verdict{true: segment.Fenced, false: segment.Unknown}[dead]
		check.List(t, verdicts, []segment.Verdict{want}, "dead %v: verdicts", dead)
		check.That(t, (r.lease == nil) == dead && len(r.asked) == 0, "dead %v: lease %v, asked %v", dead, r.lease, r.asked)
	}
}

func TestR2SilenceOnAGuessedParentProvesNothing(t *testing.T) {
	for _, test := range []struct {
		name     string
		guessed  bool
		session  string // that wrote the lease
		evidence segment.Evidence
		free     bool
	}{
		{"silence where the pool is known to be", false, "", silent, true},
		{"silence on a guess", true, "", silent, false},
		{"silence on the parent of another node's ADD", true, "node-uid/other", silent, false},
		{"silence on the parent of an ADD of this node", true, "node-uid/boot-id", silent, true},
		{"an ack on a guess", true, "", acked, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, quarantined(func(s *v1alpha1.IPLeaseSpec) { s.Session = test.session }))
			r.guessed, r.evidence = test.guessed, test.evidence
			r.look()
			check.Equal(t, r.lease == nil, test.free, "asked %+v: free", r.asked[0])
			check.That(t, r.last.Parent == "eth1" && r.last.Addr.String() == "10.0.0.2" && r.last.MAC.String() == "02:00:00:00:00:01",
				"the last holder is said to be %+v", r.last)
		})
	}
}

func TestWhatIsKnownIsWrittenOnce(t *testing.T) {
	r := newRig(t, quarantined())
	var waits []time.Duration
	for range 6 {
		waits = append(waits, r.look().RequeueAfter)
		r.clock.Step(waits[len(waits)-1])
	}
	check.That(t, r.settled == 1 && len(r.events.Events) == 1 && len(r.asked) == 6,
		"%d writes, %d events, %d looks", r.settled, len(r.events.Events), len(r.asked))
	check.That(t, waits[len(waits)-1] == unknownMost, "waits %v", waits)
}

func TestALeaseIsLeftAloneUntilItsTimeOrAChange(t *testing.T) {
	r := newRig(t, quarantined(stranger))
	r.evidence = answered
	wait := r.look().RequeueAfter
	r.clock.Step(wait / 2) // the watch tells of our own write
	check.Equal(t, r.look().RequeueAfter, wait/2, "again after")
	check.Equal(t, len(r.asked), 1, "looks:")
	r.change(func(s *v1alpha1.IPLeaseSpec) { s.Message = "" }) // somebody asks anew
	r.look()
	check.That(t, len(r.asked) == 2, "%d looks", len(r.asked))
}

func TestAnAddressOfAProxyIsFreeOnceThePoolIgnoresIt(t *testing.T) {
	for _, looked := range []bool{false, true} {
		r := newRig(t, quarantined(stranger))
		r.lease.Spec.Conflict.LastSeen = metav1.NewTime(start)
		r.evidence = answered
		for looked && r.look().RequeueAfter < time.Minute {
			r.clock.Step(time.Hour)
		}
		before := len(r.asked)
		r.look()
		check.Must(t, len(r.asked) == before, "the lease is not left alone")
		r.pool.Spec.ConflictDetection = &v1alpha1.ConflictDetection{IgnoreMACs: []string{strangerMAC.String()}}
		// Also on a parent that hears no other node.
		r.evidence = deaf
		r.look()
		check.That(t, r.lease == nil, "lease %+v", r.lease)
	}
}

func TestALeaseThatGoesIntoOtherHandsMeanwhileIsTheirs(t *testing.T) {
	for name, meanwhile := range map[string]func(*rig){
		"another verifier": func(r *rig) { r.change(func(s *v1alpha1.IPLeaseSpec) { s.NodeName = "n3" }) },
		"its pod":          func(r *rig) { r.change(func(s *v1alpha1.IPLeaseSpec) { s.State = v1alpha1.StateBound }) },
		"deleted":          func(r *rig) { r.lease = nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, quarantined())
			r.evidence = acked
			r.before = func() { meanwhile(r) }
			check.Equal(t, r.look().RequeueAfter, 0, "again after")
			check.That(t, r.settled == 0 && len(r.tries) == 0 && r.freed == 0, "%d writes, %v, %d audit lines", r.settled, r.tries, r.freed)
			r.look()
			check.That(t, len(r.asked) == 1, "a lease of somebody else was verified")
		})
	}
}

func TestALeaseThatTheCacheShowsLateIsNotVerified(t *testing.T) {
	r := newRig(t, quarantined(func(s *v1alpha1.IPLeaseSpec) { s.NodeName = "n3" }))
	r.look()
	check.That(t, r.killed == 0 && len(r.asked) == 0, "another node's lease was touched")
}

func TestWhileTheAPIServerIsAwayAVerificationWaits(t *testing.T) {
	r := newRig(t, quarantined())
	r.getError = syscall.ECONNREFUSED
	for range 10 {
		check.Equal(t, r.look().RequeueAfter, apiRetry, "again after")
	}
	check.That(t, len(r.asked) == 0, "a lease was verified that nobody could read")
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// rig is a verifier of node n1 with one lease and one pool in memory. Leases
// are settled by the real transitions.
type rig struct {
	*Verifier
	t     *testing.T
	clock *clocktesting.FakeClock
	lease *v1alpha1.IPLease // nil: gone
	pool  *v1alpha1.IPPool
	// dead is what KillHolder proves, killed how often it was asked.
	dead   bool
	killed int
	// evidence is what the segment finds, asked for what it was asked.
	evidence segment.Evidence
	asked    []segment.Verification
	opened   error
	// guessed is what OpenSegment says of the segment, last what it was asked for.
	guessed  bool
	last     segment.LastHolder
	getError error
	// before runs before the lease is settled: what happens meanwhile.
	before  func()
	settled int
	// awaited: a pod of this node takes the lease over itself.
	awaited bool
	events  *events.FakeRecorder
	// freed counts the audit lines of addresses that became free.
	freed int
}

func newRig(t *testing.T, l *v1alpha1.IPLease) *rig {
	r := &rig{t: t, clock: clocktesting.NewFakeClock(start), lease: l, events: events.NewFakeRecorder(100),
		pool: &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "v4"}}, before: func() {}}
	r.Verifier = New(Options{
		Cache: memory{rig: r}, Leases: memory{rig: r}, KillHolder: r.killHolder,
		IsStandby: func(string) bool { return r.awaited },
		OpenSegment: func(_ *v1alpha1.IPPool, last segment.LastHolder) (Segment, bool, error) {
			r.last = last
			return memory{rig: r}, r.guessed, r.opened
		},
		Self:     Node{Name: "n1", Session: "node-uid/boot-id", Cluster: "cluster", OthersShare: func() bool { return true }},
		Verified: func(segment.Verdict) {}, Conflict: func(string, segment.Source) {},
		Reporter: event.Reporter{Node: "n1", Events: r.events, Clock: r.clock, Log: funcr.New(func(prefix, line string) {
			t.Log(prefix, line)
			if prefix == "audit" && strings.Contains(line, `"msg"="free"`) {
				r.freed++
			}
		}, funcr.Options{})},
	})
	return r
}

// look lets the verifier look at the lease once.
func (r *rig) look() reconcile.Result {
	r.t.Helper()
	return check.Value(r.Reconcile(r.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "10.0.0.2"}}))(r.t)
}

// memory is the rig as the verifier's surroundings.
type memory struct {
	client.Client
	rig *rig
}

func (m memory) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *v1alpha1.IPLease:
		if m.rig.lease != nil {
			m.rig.lease.DeepCopyInto(o)
			return nil
		}
	case *v1alpha1.IPPool:
		if m.rig.pool != nil {
			m.rig.pool.DeepCopyInto(o)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (r *rig) killHolder(context.Context, string) (*v1alpha1.IPLease, bool, error) {
	if r.getError != nil {
		return nil, false, r.getError
	}
	if r.lease == nil {
		return nil, false, lease.ErrGone
	}
	r.killed++
	return r.lease.DeepCopy(), r.dead, nil
}

func (m memory) Verify(_ context.Context, v segment.Verification) (segment.Verdict, segment.Evidence, error) {
	m.rig.asked = append(m.rig.asked, v)
	e, heard := v.Evidence(), m.rig.evidence
	e.Carrier, e.Observed, e.Unanswered = true, true, segment.MinRounds
	e.Acked, e.Answer, e.Heard, e.Canary, e.Asked = heard.Acked, heard.Answer, heard.Heard, heard.Canary, heard.Asked
	return segment.Judge(e), e, nil
}

func (m memory) Settle(_ context.Context, l *v1alpha1.IPLease, f lease.Finding, e lease.Evidence) (*v1alpha1.IPLease, error) {
	r := m.rig
	r.before()
	if r.lease == nil {
		return nil, lease.ErrGone
	}
	if r.lease.ResourceVersion != l.ResourceVersion {
		return nil, lease.ErrNotMine
	}
	what, next, err := lease.Settle(*l.Spec.DeepCopy(), f, e, r.clock.Now())
	if err != nil {
		return nil, err
	}
	r.settled++
	if what == lease.Free {
		r.lease = nil
		return nil, nil
	}
	r.change(func(s *v1alpha1.IPLeaseSpec) { *s = next })
	return r.lease.DeepCopy(), nil
}

// change writes the lease.
func (r *rig) change(change func(*v1alpha1.IPLeaseSpec)) {
	change(&r.lease.Spec)
	version, _ := strconv.Atoi(r.lease.ResourceVersion)
	r.lease.ResourceVersion = strconv.Itoa(version + 1)
}

// quarantined is a lease that the controller took from a pod of n2.
func quarantined(change ...func(*v1alpha1.IPLeaseSpec)) *v1alpha1.IPLease {
	l := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.2", UID: "u", ResourceVersion: "50"}, Spec: v1alpha1.IPLeaseSpec{
		Address: "10.0.0.2", Pool: "v4", Parent: "eth1", State: v1alpha1.StateQuarantined, NodeName: "n1",
		Reason: v1alpha1.ReasonPodTerminating, Holder: &v1alpha1.Holder{Namespace: "shop", Pod: "web", Interface: "eth0"},
		Previous: &v1alpha1.PreviousHolder{Node: "n2", Session: "s", MAC: "02:00:00:00:00:01", Token: 40, Reason: v1alpha1.ReasonPodTerminating},
	}}
	for _, c := range change {
		c(&l.Spec)
	}
	return l
}

// stranger makes it a lease for which somebody answered at ADD.
func stranger(s *v1alpha1.IPLeaseSpec) {
	s.Reason, s.Previous, s.Holder = v1alpha1.ReasonConflict, nil, nil
	s.Conflict = &v1alpha1.Conflict{MAC: strangerMAC.String()}
}

func static(s *v1alpha1.IPLeaseSpec) { s.Holder.OwnerKind = "StatefulSet" }

var strangerMAC = net.HardwareAddr{2, 0xbd, 0, 0, 0, 1}
