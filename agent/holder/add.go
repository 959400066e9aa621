// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/node"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/audit"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Add gives a new pod interface its addresses, all or none of them. If ctx ends first, Add undoes
// all its steps. The caller calls Answered once the plugin has the answer.
func (h *Holders) Add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
	if r.Chained {
		return h.addChained(ctx, r)
	}
	defer h.Journal.Calls.Lock(r.Attachment)()
	q := h.enter(r)
	for {
		a, answer, err := h.try(ctx, q)
		if err == nil {
			q.place.Leave(true)
			return answer, nil
		}
		if a == nil || !refusal.IsExhausted(err) && !isUnmade(err) {
			q.place.Leave(false)
			return nil, err
		}
		if err := q.await(ctx, a, err); err != nil {
			a.refused(err)
			q.place.Leave(false)
			return nil, err
		}
	}
}

// try is one try of an ADD, within the time of one call. If it fails, all its steps are undone. If its
// pools are full, it also returns the try: the caller waits, and reports the error if the wait fails.
func (h *Holders) try(ctx context.Context, q *queued) (*adding, *agentapi.AddResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, agentapi.CallTimeout)
	defer cancel()
	h.Journal.Calls.BeginADD(q.request.Attachment)
	defer h.Journal.Calls.EndADD(q.request.Attachment)

	lap := h.Laps()
	if err := h.reach(ctx); err != nil {
		return nil, nil, err
	}
	a, err := h.begin(ctx, q, lap)
	if err != nil {
		return nil, nil, err
	}
	lap("pod")
	h.ignored.tell(h.Events, a.Pod, q.request.Network)
	h.Journal.Calls.BeginADD(q.request.Attachment) // the undo of an earlier ADD does not overtake this one
	if device := q.request.Network.Device; device != "" {
		defer h.Journal.Calls.LockLease(device)() // two ADDs must not look for other users of it at the same time
	}
	// The steps run one after the other, because waking another thread takes as long as a step.
	if err := a.locate(); err != nil {
		return nil, nil, err
	}
	lap("interface")
	q.place.Look()
	choice, d, err := a.choose(ctx)
	if isUnmade(err) {
		return a, nil, err
	}
	if err != nil {
		a.refused(err)
		return nil, nil, err
	}
	lap("pools")
	response, err := a.bind(ctx, choice, d)
	if err != nil {
		h.away.Store(lease.IsUnavailable(err))
		a.undo()
		if refusal.IsExhausted(err) {
			return a, nil, err
		}
		a.refused(err)
		return nil, nil, err
	}
	lap("record")
	h.Put(a.Interface)
	return a, response, nil
}

// adding is one try of an ADD.
type adding struct {
	*Holders
	*acquire.Try
	queued *queued
}

// begin reads the pod, and undoes an earlier ADD of the same attachment.
func (h *Holders) begin(ctx context.Context, q *queued, lap func(step string)) (*adding, error) {
	r := q.request
	pod, err := h.Pod(ctx, r.Pod)
	if err != nil {
		return nil, err
	}
	a := &adding{Holders: h, queued: q, Try: &acquire.Try{
		Interface: acquire.NewInterface(h.Releaser, r, pod), Pod: pod, Place: q.place, Offer: q.offer, Lap: lap,
	}}
	a.Replaced = q.replaced
	if old, ok := h.Journal.Get(r.ContainerID, r.Interface); ok {
		// The runtime repeats an ADD without a DEL.
		if err := h.Release(ctx, old); err != nil {
			return nil, fmt.Errorf("release the addresses of an earlier ADD: %w", err)
		}
		if old.NetNS == r.NetNS && old.Session == h.Session && !old.Unguarded {
			a.Replaced = append(a.Replaced, old.Slot)
		}
	}
	return a, nil
}

// userOf returns the entry of another sandbox that lives and drives the VF of link itself. A network may
// name any device, and the fence of that sandbox must not end with a later ADD. A VF that the kernel
// drives has moved to the namespace of this ADD.
func (a *adding) userOf(link pod.Interface) *attachment.Entry {
	for _, e := range a.Journal.All() {
		if link.Unguarded && e.Device == link.Device && e.Session == a.Session && e.Attachment() != a.Request.Attachment && a.SandboxMayLive(e) {
			return e
		}
	}
	return nil
}

// locate finds the interface, and opens the segment that it reaches.
func (a *adding) locate() error {
	link, err := a.FindLink(a.Request.NetNS, a.Request.Interface)
	if device := a.Request.Network.Device; errors.Is(err, pod.ErrNoInterface) && device != "" {
		if found, ok, vfErr := a.FindUserVF(device); ok || vfErr != nil {
			link, err = found, vfErr
		}
	}
	if err != nil {
		return fmt.Errorf("find interface %s of pod %s/%s: %w", a.Who.Interface, a.Who.Namespace, a.Who.Pod, err)
	}
	if other := a.userOf(link); other != nil {
		return refusal.New(refusal.TryAgain,
			"VF %s is in use by pod %s/%s, which lives: let the device plugin choose the VF instead of naming it in the network, or delete that pod",
			link.Device, other.PodNamespace, other.PodName)
	}
	seg, err := a.OpenSegment(link.Parent.Index)
	if err != nil {
		return fmt.Errorf("open the segment of %s: %w", link.Parent.Name, err)
	}
	a.Found(link, seg)
	return nil
}

// choose returns the pools that may serve the interface, and the decision about kept leases.
func (a *adding) choose(ctx context.Context) (choice ipam.Choice, d acquire.Decision, err error) {
	if a.Asked, err = node.FixedAddressOf(a.Pod); err != nil {
		return choice, d, err
	}
	leases, err := a.keptLeases(ctx)
	if err != nil {
		return choice, d, err
	}
	s, err := a.surroundings(ctx, a.Request, a.Pod)
	if err != nil {
		return choice, d, err
	}
	a.warn(s)
	if err := a.belongs(ctx, &s); err != nil {
		return choice, d, err
	}
	if len(leases) > 0 || slices.ContainsFunc(s.pools, func(p v1alpha1.IPPool) bool { return len(p.Spec.Parents) > 0 }) {
		if s.request.Parent, err = a.ParentOf(a.Link.Parent.Index); err != nil {
			return choice, d, fmt.Errorf("find the parent of interface %s: %w", a.Who.Interface, err)
		}
	}
	of := acquire.KeptInterface{Who: &a.Who, Node: a.Node, Asked: a.Asked, ByDefault: a.StatefulSet, Leases: leases}
	return of.Choose(s.request, s.pools, s.reserved)
}

// bind binds one address of each family, while the guard is attached. It returns the answer.
func (a *adding) bind(ctx context.Context, choice ipam.Choice, d acquire.Decision) (*agentapi.AddResponse, error) {
	if err := a.MayFind(choice, d); err != nil {
		return nil, err
	}
	for _, family := range choice.Families {
		b, err := a.Family(ctx, family, d)
		if err != nil {
			return nil, err
		}
		a.Won, a.Trying = append(a.Won, b), nil
	}
	if err := a.Guard(); err != nil {
		return nil, err
	}
	if err := a.AwaitGateways(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("the runtime cancelled the call: %w", context.Cause(ctx))
	}
	if a.Journal.Calls.IsOvertaken(a.Request.Attachment) {
		return nil, refusal.New(refusal.TryAgain,
			"the address was taken back while ADD was under way, since pod %s/%s was gone; the next try chooses anew",
			a.Who.Namespace, a.Who.Pod)
	}
	if err := a.stillBound(ctx); err != nil {
		return nil, err
	}
	// An error after record would leave an interface that is bound without an answer.
	response, err := answer(choice, a.Won, a.Request.Network)
	if err != nil {
		return nil, err
	}
	return response, a.record()
}

// stillBound reads the leases again that a controller may have taken meanwhile: an ADD may stall for
// any time, and the address may have another holder. The controller takes no lease within
// v1alpha1.AnswerTime after its write, so a usual ADD reads nothing. The times of the API server that
// both compare are rounded to seconds, so this clock must be well below.
func (a *adding) stillBound(ctx context.Context) error {
	for _, b := range a.Won {
		if b.Address.Behind != 0 || a.Clock.Since(b.Since) < v1alpha1.AnswerTime/2 {
			continue
		}
		l, err := a.Leases.Get(ctx, b.Address.LeaseName)
		if err != nil && !errors.Is(err, lease.ErrGone) {
			return fmt.Errorf("read the lease again before the answer: %w", err)
		}
		if err != nil || string(l.UID) != b.Address.LeaseUID || l.Spec.State != v1alpha1.StateBound ||
			l.Spec.Holder == nil || l.Spec.Holder.ContainerID != a.Request.ContainerID {
			return refusal.New(refusal.TryAgain, "lease %s was taken while ADD was under way for %s; the next try chooses anew",
				b.Address.LeaseName, a.Clock.Since(b.Since).Round(time.Millisecond))
		}
	}
	return nil
}

// undo is a DEL of the steps done so far. A release that fails is journalled and
// left to the worker: it is no error of the ADD.
func (a *adding) undo() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.Background), attachment.UndoTimeout)
	defer cancel()
	// The slot is killed whether or not the guard was attached.
	_ = a.AwaitGuard()
	if err := a.Release(ctx, a.Entry(attachment.Intent)); err != nil {
		a.Later(a.Request.Attachment, "undo of an ADD", err)
	}
	a.RestoreMAC()
}

// record journals that the interface holds its addresses.
func (a *adding) record() error {
	// From here on, a DEL keeps the address for the pod's name. Before this point it must not: the
	// next ADD of a Retained address claims before it probes, so the address must be proven.
	for i := range a.Won {
		a.Won[i].Address.Static = a.Keeps(a.Won[i].Pool)
	}
	e := a.Entry(attachment.Bound)
	// The plugin sets the interface up after the answer.
	for _, b := range a.Won {
		if err := a.Guards.Install(&e, b.Address); err != nil {
			return err
		}
	}
	if err := a.GuardSources(&e); err != nil {
		return err
	}
	accepts := func(b acquire.Bound) bool { return b.Pool.Spec.RouterAdvertisements == v1alpha1.RoutersAccepted }
	if !e.Unguarded && !slices.ContainsFunc(a.Won, accepts) {
		if err := a.Links.IgnoreRouters(e.NetNS, e.Interface); err != nil {
			return err
		}
	}
	if err := a.Journal.Put(e); err != nil {
		return err
	}
	a.WatchSources()
	a.Expected.Forget(a.Who.PodUID, a.Who.Interface)
	a.WakeVFs(&e)
	for _, b := range a.Won {
		if b.Address.Behind != 0 {
			a.Journal.Pending.Add(e.Attachment())
			continue
		}
		a.Audit(audit.Grant, &e, b.Address, "")
	}
	return nil
}

// reach reads the node if the last ADD could not reach the API server. In an outage, an ADD then
// takes no slot and writes nothing, however often the runtime tries (R5).
func (h *Holders) reach(ctx context.Context) error {
	if !h.away.Load() {
		return nil
	}
	err := h.Reader.Get(ctx, client.ObjectKey{Name: h.Node}, &corev1.Node{})
	if lease.IsUnavailable(err) {
		return fmt.Errorf("read node %s: %w", h.Node, err)
	}
	h.away.Store(false)
	return nil
}

// answer returns the addresses with their gateways, and the routes, for the runtime to configure.
func answer(choice ipam.Choice, bound []acquire.Bound, n agentapi.Network) (*agentapi.AddResponse, error) {
	var r agentapi.AddResponse
	for i, b := range bound {
		subnet, err := poolset.Subnet(b.Pool)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", b.Pool.Name, err)
		}
		r.IPs = append(r.IPs, agentapi.IP{Address: netip.PrefixFrom(b.Address.Addr, subnet.Bits()), Gateway: b.Pool.Gateway()})
		// Addresses are bound in the order of the families.
		routes, err := acquire.RoutesThrough(&choice.Families[i], b.Pool, n)
		if err != nil {
			return nil, err
		}
		for _, route := range routes {
			r.Routes = append(r.Routes, agentapi.Route{Dst: route.Dst, GW: route.Gateway})
		}
	}
	return &r, nil
}
