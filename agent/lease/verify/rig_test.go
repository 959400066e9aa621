// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"net"
	"strconv"
	"strings"
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
	"github.com/fenceline/fenceline/test/check"
)

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
		Node: "n1", Session: "node-uid/boot-id", Cluster: "cluster", Cache: memory{rig: r}, Leases: memory{rig: r}, Holders: memory{rig: r},
		OpenSegment: func(_ *v1alpha1.IPPool, last segment.LastHolder) (Segment, bool, error) {
			r.last = last
			return memory{rig: r}, r.guessed, r.opened
		},
		OthersShare: func() bool { return true },
		Verified:    func(segment.Verdict) {}, Conflict: func(string, segment.Source) {},
		Events: r.events, Clock: r.clock,
		Log: funcr.New(func(prefix, line string) {
			t.Log(prefix, line)
			if prefix == "audit" && strings.Contains(line, `"msg"="free"`) {
				r.freed++
			}
		}, funcr.Options{}),
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

func (m memory) StandsBehind(string) bool { return m.rig.awaited }

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

func (m memory) KillHolder(context.Context, string) (*v1alpha1.IPLease, bool, error) {
	if m.rig.getError != nil {
		return nil, false, m.rig.getError
	}
	if m.rig.lease == nil {
		return nil, false, lease.ErrGone
	}
	m.rig.killed++
	return m.rig.lease.DeepCopy(), m.rig.dead, nil
}

func (m memory) Verify(_ context.Context, v segment.Verification) (segment.Verdict, segment.Evidence, error) {
	m.rig.asked = append(m.rig.asked, v)
	e := m.rig.evidence
	e.Carrier, e.Observed, e.Unanswered = true, true, segment.MinRounds
	e.SlotDead, e.Asserted, e.OthersShare, e.Guessed = v.SlotDead, v.Asserted, v.OthersShare, v.Guessed
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
