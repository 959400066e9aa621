// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/proof"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/agent/release"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/waiting"
	"github.com/fenceline/fenceline/agent/warm"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// Segment is the network segment behind one parent. *segment.Segment implements it.
type Segment interface {
	Probe(context.Context, netip.Addr, segment.ProbeParams) (segment.Answer, error)
	// Ask asks for an address that another host should use.
	Ask(context.Context, netip.Addr) (segment.Reply, error)
	ClaimAndConfirm(context.Context, segment.Claim) error
	Verify(context.Context, segment.Verification) (segment.Verdict, segment.Evidence, error)
	Announce(segment.Announcement)
	// Observe attaches the observer again if it was detached or lost its place.
	Observe() error
}

// Warm is the stock of this node's Warm leases. *warm.Keeper implements it.
type Warm interface {
	// Take reserves a lease for the caller until PutBack or Ended.
	Take(warm.Wish) (warm.Stocked, bool)
	// Doubt returns the evidence of the kernel against a lease that was taken as ready;
	// DoubtNone if there is none. For DoubtSpoken it also returns the other host.
	Doubt(warm.Stocked) (segment.Doubt, segment.Answer)
	// PutBack returns a lease that was not written.
	PutBack(warm.Stocked)
	// Ended reports that a lease is no longer Warm.
	Ended(warm.Stocked)
	// Used reports that a pod of this node got an address of a pool on a parent, without a request for
	// a particular one.
	Used(pool, parent string)
}

// Links changes the interfaces of pods. *pod.Finder implements it.
type Links interface {
	SetMAC(netns, ifname string, mac net.HardwareAddr) error
	SetDown(netns, ifname string) error
	// IgnoreRouters makes an interface take nothing from router advertisements and redirects.
	IgnoreRouters(netns, ifname string) error
}

// Metrics counts events of ADDs. Its methods may be called concurrently.
type Metrics interface {
	Conflict(pool string, source segment.Source)
	Verification(verdict segment.Verdict)
	// GatewayUnanswered counts a pool that an ADD has passed over because its gateway did not answer.
	GatewayUnanswered(pool string)
}

// Options of an Acquirer. All are required.
type Options struct {
	// Self is this node.
	Self proof.Node
	// StatefulSet is the treatment of the addresses of StatefulSet pods in pools that set none.
	StatefulSet v1alpha1.StatefulSetMode

	// Cache reads from the agent's filtered caches.
	Cache       client.Reader
	Attachments *attachment.Table
	Leases      *lease.Store
	Allocator   *allocate.Allocator
	Warm        Warm
	// Foreign are the foreign hosts that have answered on this node.
	Foreign *segment.ForeignHosts

	Guards *guards.Guards
	// GuardSources tells the kernel what the interface of an entry may send.
	GuardSources func(*attachment.Entry) error
	Releaser     *release.Releaser
	Links        Links
	// Sighted reports whether another host that uses the address was heard a moment ago.
	Sighted func(parent int, addr netip.Addr) bool
	// OfNode reports whether this node has the address; a link-local one must be on the parent.
	OfNode func(parent int, addr netip.Addr) (bool, error)

	// Services returns the service CIDRs; it waits until the agent has searched for them. NodeSubnets
	// returns the subnets of the node's internal addresses.
	Services    func(context.Context) []netip.Prefix
	NodeSubnets func() ([]netip.Prefix, error)
	// Share returns this agent's part of every pool.
	Share func() ipam.Share

	Events  events.EventRecorder
	Metrics Metrics
	Log     logr.Logger
	Clock   clock.Clock
	// Background outlives a call; undo runs in it.
	Background context.Context
}

// Acquirer wins addresses. Its methods may be called concurrently.
type Acquirer struct{ Options }

// New returns an Acquirer.
func New(o Options) *Acquirer { return &Acquirer{o} }

// Request asks for one address of each family.
type Request struct {
	// Call is the call of the plugin. Holder describes its pod, with the MAC of Link.
	Call   agentapi.AddRequest
	Pod    *corev1.Pod
	Holder v1alpha1.Holder
	// Link is the interface as its plugin has made it, Segment the one that it reaches.
	Link    pod.Interface
	Segment Segment
	// Choice has the pools of each family, and Kept the decision about the leases that are kept for
	// the interface.
	Choice ipam.Choice
	Kept   Decision
	// Asked is the request of the pod's annotations for an address that stays with its name.
	Asked v1alpha1.FixedAddress
	// Place in the queue for full pools. Offer is the address that came free for this ADD.
	Place *waiting.Place
	Offer waiting.Offer
	// Muting are the dead slots that an earlier ADD and earlier rounds of this one have left on the
	// interface. They keep it mute until the next guard enforces.
	Muting []uint32
	// Lap ends a step in the metric of the steps.
	Lap func(step string)
}

// Result is the outcome of Acquire. If the pools are full, it has Full and Muting only; after another
// error it is empty.
type Result struct {
	// Entry is the journal's record of the interface. It is Bound.
	Entry   attachment.Entry
	Segment Segment
	// MAC is that of the interface.
	MAC net.HardwareAddr
	// Won has the addresses in the order of the families.
	Won []Won
	// Full are the pools for which the ADD may wait.
	Full []ipam.Candidate
	// Muting: see Request.
	Muting []uint32
}

// Won is an address that was won.
type Won struct {
	Address attachment.Address
	// Pool is nil if the address has moved here from an older sandbox.
	Pool *v1alpha1.IPPool
	// Unclaimed is the claim to send after the answer, nil if there is none.
	Unclaimed *segment.Claim

	// since is when the write of the lease began.
	since time.Time
}

// round is one round of an ADD through the sources, for all families.
type round struct {
	a *Acquirer
	Request
	i *iface
	// full are the pools that the ADD waits for if it wins no address of the present family.
	full []ipam.Candidate
	// gateways wait for the results of the checks of gateways, by pool.
	gateways map[string]func() error
}

// Acquire gives the interface one address of each family, or none. After an error, or if ctx ends first,
// all its steps are undone. The caller has locked the attachment, and sends the answer.
func (a *Acquirer) Acquire(ctx context.Context, r Request) (Result, error) {
	d := &round{a: a, Request: r, i: newIface(a, r), gateways: map[string]func() error{}}
	err := d.run(ctx)
	if err == nil {
		return Result{Entry: d.i.entry(attachment.Bound), Segment: r.Segment, MAC: d.i.link.MAC, Won: d.i.won}, nil
	}
	d.i.undo()
	if !refusal.Waits(err) {
		return Result{}, err
	}
	muting, unknown := d.i.mutes()
	if unknown != nil {
		return Result{}, unknown
	}
	return Result{Full: d.full, Muting: muting}, err
}

func (r *round) run(ctx context.Context) error {
	if err := r.mayFind(); err != nil {
		return err
	}
	for _, f := range r.Choice.Families {
		w, err := r.win(ctx, f)
		if err != nil {
			return err
		}
		r.i.won, r.i.trying = append(r.i.won, w), nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the runtime cancelled the call: %w", context.Cause(ctx))
	}
	if r.a.Attachments.Calls.IsOvertaken(r.Call.Attachment) {
		return refusal.New(refusal.TryAgain,
			"the address was taken back while ADD was under way, since pod %s/%s was gone; the next try chooses anew",
			r.Holder.Namespace, r.Holder.Pod)
	}
	if err := r.stillBound(ctx); err != nil {
		return err
	}
	return r.record() // an error after it would leave an interface that is bound without an answer
}

// stillBound reads the leases again that a controller may have taken meanwhile: an ADD may stall for
// any time, and the address may have another holder. The controller takes no lease within
// v1alpha1.AnswerTime after its write, so a usual ADD reads nothing. The times of the API server that
// both compare are rounded to seconds, so this clock must be well below.
func (r *round) stillBound(ctx context.Context) error {
	for _, w := range r.i.won {
		took := r.a.Clock.Since(w.since)
		if w.Address.Behind != 0 || took < v1alpha1.AnswerTime/2 {
			continue
		}
		l, err := r.a.Leases.Get(ctx, w.Address.LeaseName)
		if err != nil && !errors.Is(err, lease.ErrGone) {
			return fmt.Errorf("read the lease again before the answer: %w", err)
		}
		if err != nil || string(l.UID) != w.Address.LeaseUID || l.Spec.State != v1alpha1.StateBound ||
			l.Spec.Holder == nil || l.Spec.Holder.ContainerID != r.Call.ContainerID {
			return refusal.New(refusal.TryAgain, "lease %s was taken while ADD was under way for %s; the next try chooses anew",
				w.Address.LeaseName, took.Round(time.Millisecond))
		}
	}
	return nil
}

// record journals that the interface holds its addresses.
func (r *round) record() error {
	// From here on, a DEL keeps the address for the pod's name. Before this point it must not: the
	// next ADD of a Retained address claims before it probes, so the address must be proven.
	for n := range r.i.won {
		r.i.won[n].Address.Static = r.keeps(r.i.won[n].Pool)
	}
	e := r.i.entry(attachment.Bound)
	if e.SharedMAC && e.IsStandby() { // its MAC must not be heard here
		for n := range r.i.won {
			r.i.won[n].Address.Waits = r.i.won[n].Address.Behind == 0
		}
		e = r.i.entry(attachment.Bound)
	}
	// Install again: until now, a frame with the MAC of the interface could only be another host's. From
	// the answer on, it may be the pod's.
	for _, w := range r.i.won {
		if err := r.a.Guards.Leases.Install(&e, w.Address); err != nil {
			return err
		}
	}
	// Again: only now are the MAC and the pools of all addresses final. If they were before, this changes
	// nothing in the kernel.
	if err := r.a.GuardSources(&e); err != nil {
		return err
	}
	return r.i.put(e)
}
