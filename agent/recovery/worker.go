// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/pod/vf"
	"github.com/fenceline/fenceline/agent/proof"
	"github.com/fenceline/fenceline/agent/release"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// auditPeriod is how often the journal is compared with the cached leases without an event.
	auditPeriod = time.Minute
	// lateAuditPeriod is the same while a write may still come true after its caller has given up.
	lateAuditPeriod = 5 * time.Second
	// retryFirst and retryMost bound the back-off. In an outage, each try is one call.
	retryFirst = 100 * time.Millisecond
	retryMost  = time.Second
	// firstPatience is the time for which the first try waits for the API server, which may never
	// answer while it starts. Each try that was too short doubles it, up to attachment.AskTimeout.
	firstPatience = time.Second
	// atOnce is the largest number of entries that are resumed at the same time. A slow API server
	// would take minutes for all of them one by one, and after an outage the agents must not flood it.
	atOnce = 4
)

// Metrics counts what recovery does. Its methods may be called concurrently.
type Metrics interface {
	Verification(verdict segment.Verdict)
	// Renewal counts a renewal of the token of an address that was fenced although its lease was the
	// holder's own. It may be segment.Unverified.
	Renewal(verdict segment.Verdict)
}

// Options of a Worker. All but UserVFs are required.
type Options struct {
	// Self is this node.
	Self proof.Node
	// Cache reads from the agent's filtered caches, Reader past them. Client deletes pods.
	Cache, Reader client.Reader
	Client        client.Writer
	Attachments   *attachment.Table
	Leases        *lease.Store
	Guards        *guards.Guards
	Releaser      *release.Releaser
	// WakeHostLink repairs the routing of an attachment soon.
	WakeHostLink func(agentapi.Attachment)
	// FollowYoung continues the readings of the MAC of a new interface.
	FollowYoung func(*attachment.Entry)
	// OpenSegment returns the segment of a parent, and opens it at first use.
	OpenSegment func(parent int) (acquire.Segment, error)
	// FindLink finds a pod's interface in its network namespace.
	FindLink func(netns, ifname string) (pod.Interface, error)
	// Revision returns the newest revision of the store that this node has known since its boot.
	Revision func() (uint64, error)
	// Places returns the interfaces in the network namespaces of this node, and Routing the routing
	// of an entry's interface as it is in the pod: the remains of pods whose entries are lost.
	Places  func() ([]pod.Place, error)
	Routing func(*attachment.Entry) (*attachment.Routing, error)
	// UserVFs returns the VFs of this node that programs drive themselves. Nil: there are none.
	UserVFs func() ([]vf.Function, error)

	Events  events.EventRecorder
	Metrics Metrics
	Log     logr.Logger
	Clock   clock.Clock
}

// Worker makes journal, kernel and API server agree again. Restore, Changed
// and LookAgain may be called concurrently with Run.
type Worker struct {
	Options

	// mu protects disputed and renewals, which the entries of a pass share. They and all fields below
	// belong to Run.
	mu sync.Mutex
	// disputed has the time since which another holder's lease is seen for an address held here.
	disputed map[dispute]time.Time
	// renewals has the addresses that were fenced although their lease was the holder's own.
	renewals renewals
	// unresumed counts, for each entry, the passes that ended with the failure of that entry.
	unresumed map[agentapi.Attachment]int
	// withoutEntry are the leases without an entry at the last audit, by name with their version.
	withoutEntry map[string]string
	// lateUntil is the end of the time in which a write that was given up may come true.
	lateUntil time.Time
	// lostDone: the entries that the journal had lost are rebuilt.
	lostDone bool
	// lastBootDone: since the last audit, all leases from before the last boot were seen to be quarantined.
	lastBootDone bool
}

// New returns a Worker for the entries of the journal.
func New(o Options) *Worker {
	return &Worker{Options: o, disputed: map[dispute]time.Time{}, renewals: renewals{}, unresumed: map[agentapi.Attachment]int{}}
}

// Changed handles a change of the lease of that name. A GET decides, not the watch (R7).
func (w *Worker) Changed(name string) {
	for _, e := range w.Attachments.All() {
		if _, named := e.Lease(name); named {
			w.Attachments.Pending.Add(e.Attachment())
		}
	}
}

// LookAgain makes every entry pending. Call it if the watches may have missed changes.
func (w *Worker) LookAgain() {
	for _, e := range w.Attachments.All() {
		w.Attachments.Pending.Add(e.Attachment())
	}
}

// Run resumes the whole journal, and from then on the pending entries: at once, and
// again until it succeeds. It returns when ctx ends. Call it once.
func (w *Worker) Run(ctx context.Context) error {
	w.LookAgain()
	left, patience, audited := 0, firstPatience, w.Clock.Now() // left: the entries that the last pass left
	l := loop.Loop{Clock: w.Clock, Period: auditPeriod, Wake: w.Attachments.Pending.Wake(), First: retryFirst, Most: retryMost}
	l.Failed = func(err error) {
		if !errors.Is(err, errBusy) {
			w.Log.Info("entries of the journal wait to be resumed", "entries", left, "why", err.Error())
		}
	}
	return l.Pace(ctx, func(ctx context.Context) (time.Duration, error) {
		if w.Clock.Since(audited) >= w.auditPause() {
			audited, w.lastBootDone = w.Clock.Now(), false // the leases that are known may have become more
			w.suspect(ctx)
			if err := w.freeWithoutEntry(ctx); err != nil {
				w.Log.Info("leases without an entry in the journal wait for the next audit", "why", err.Error())
			}
		}
		lost := w.recoverLost(ctx)
		var err error
		left, err = w.Resume(ctx, patience)
		err = errors.Join(err, lost, w.setAsideLastBoot(ctx))
		switch {
		case err == nil:
			patience = firstPatience
			return w.auditPause(), nil
		case errors.Is(err, context.DeadlineExceeded):
			patience = min(2*patience, attachment.AskTimeout)
		}
		return 0, err
	})
}

// auditPause returns the pause between two audits. The lost entries must have been made again before
// audits come close together.
func (w *Worker) auditPause() time.Duration {
	if w.lostDone && w.Clock.Now().Before(w.lateUntil) {
		return lateAuditPeriod
	}
	return auditPeriod
}

// worth orders the phases: an entry with a lower worth is resumed first.
func worth(p attachment.Phase) int {
	if p == attachment.Bound {
		return 1
	}
	return 0
}

// Resume resumes the pending entries, each for at most patience. Entries that free addresses come
// first, since other pods wait for them. It returns how many entries are left, and the first error.
// The first entry asks alone whether the API server answers. No entry begins after a call that it does not
// answer. The next Resume begins with another entry, since the failure may be about one pod only, as with
// a webhook.
func (w *Worker) Resume(ctx context.Context, patience time.Duration) (left int, first error) {
	todo := w.Attachments.Pending.Take()
	entries := slices.Clone(w.Attachments.All())
	slices.SortStableFunc(entries, func(a, b *attachment.Entry) int {
		return cmp.Or(cmp.Compare(w.unresumed[a.Attachment()], w.unresumed[b.Attachment()]), cmp.Compare(worth(a.Phase), worth(b.Phase)))
	})
	var mu sync.Mutex // protects the following, and unresumed
	answers, away := false, false
	resume := func(a agentapi.Attachment) {
		err := w.resumeEntry(ctx, a, patience)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			answers = true
			delete(w.unresumed, a)
			return
		}
		if first == nil || errors.Is(first, errBusy) {
			first = err
		}
		if lease.IsUnavailable(err) {
			away = true
			w.unresumed[a]++
		}
		w.Attachments.Pending.PutBack(a)
		left++
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, e := range entries {
		a := e.Attachment()
		if !todo[a] {
			continue
		}
		delete(todo, a)
		mu.Lock()
		alone, late := !answers, away
		if late {
			left++
		}
		mu.Unlock()
		switch {
		case late:
			w.Attachments.Pending.PutBack(a)
		case alone:
			resume(a)
		default:
			g.Go(func() error { resume(a); return nil })
		}
	}
	_ = g.Wait()
	if left == 0 {
		clear(w.unresumed)
	}
	if len(todo) > 0 { // an ADD that has no entry any more was given up
		w.lateUntil = w.Clock.Now().Add(lease.LateWrite)
	}
	return left, first
}

// suspect makes an entry pending if the cache does not show its leases as held here.
func (w *Worker) suspect(ctx context.Context) {
	for _, e := range w.Attachments.All() {
		if e.Phase != attachment.Bound || e.Session != w.Self.Session || !w.looksHeld(ctx, e) {
			w.Attachments.Pending.Add(e.Attachment())
		}
	}
}

func (w *Worker) looksHeld(ctx context.Context, e *attachment.Entry) bool {
	for _, address := range e.Addresses {
		l := &v1alpha1.IPLease{}
		err := w.Cache.Get(ctx, client.ObjectKey{Name: address.LeaseName}, l)
		if err != nil || !release.Holds(l, w.Self.Name, e) || l.Spec.Session != w.Self.Session || string(l.UID) != address.LeaseUID ||
			lease.IsBehind(l, address.Token) {
			return false
		}
	}
	return true
}

// warn writes a warning event about a pod. The pod need not exist any more.
func (w *Worker) warn(e *attachment.Entry, reason, note string, args ...any) {
	w.Events.Eventf(event.Pod(e.PodNamespace, e.PodName, e.PodUID), nil, corev1.EventTypeWarning, reason, "Bind", note, args...)
}
