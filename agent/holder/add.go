// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/agent/holder/node"
	"github.com/fenceline/fenceline/agent/holder/refusal"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/pod/vf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/audit"
)

// Add gives a new pod interface its addresses, all or none of them. If ctx ends first, Add undoes
// all its steps. The caller calls Answered once the plugin has the answer.
func (h *Holders) Add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
	if r.Chained {
		return h.addChained(ctx, r)
	}
	defer h.LockAttachment(r.Attachment)()
	defer h.Overtaken.Forget(r.Attachment)
	q := h.enter(r)
	for {
		a, answer, err := h.try(ctx, q)
		if err == nil {
			q.place.Leave(true)
			return answer, nil
		}
		if a == nil || !isExhausted(err) && !isAwaited(err) {
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
	defer h.BeginADD()()

	if err := h.reach(ctx); err != nil {
		return nil, nil, err
	}
	a, err := h.begin(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	h.ignored.tell(h.Events, a.pod, q.request.Network)
	h.Overtaken.Begin(q.request.Attachment)
	// The steps run one after the other, because waking another thread takes as long as a step.
	if err := a.locate(); err != nil {
		return nil, nil, err
	}
	q.place.Look()
	choice, kept, err := a.choose(ctx)
	if isAwaited(err) {
		return a, nil, err
	}
	if err != nil {
		a.refused(err)
		return nil, nil, err
	}
	if err := a.bind(ctx, choice, kept); err != nil {
		h.away.Store(lease.IsUnavailable(err))
		a.undo()
		if isExhausted(err) {
			return a, nil, err
		}
		a.refused(err)
		return nil, nil, err
	}
	h.unanswered.put(a)
	response, err := answer(choice, a.bound, q.request.Network)
	return a, response, err
}

// begin reads the pod, and undoes an earlier ADD of the same attachment.
func (h *Holders) begin(ctx context.Context, q *queued) (*adding, error) {
	r := q.request
	pod, err := h.Pod(ctx, r.Pod)
	if err != nil {
		return nil, err
	}
	a := &adding{h: h, request: r, queued: q, pod: pod, who: node.Of(pod, r.Attachment, ""), created: h.Clock.Now()}
	if old, ok := h.Journal.Get(r.ContainerID, r.Interface); ok {
		// The runtime repeats an ADD without a DEL.
		if err := h.Release(ctx, old); err != nil {
			return nil, fmt.Errorf("release the addresses of an earlier ADD: %w", err)
		}
		if old.NetNS == r.NetNS && old.Session == h.Session {
			q.replaced = append(q.replaced, old.Slot)
		}
	}
	return a, nil
}

// locate finds the interface, and opens the segment that it reaches.
func (a *adding) locate() error {
	link, err := a.h.FindLink(a.request.NetNS, a.request.Interface)
	if device := a.request.Network.Device; errors.Is(err, pod.ErrNoInterface) && device != "" {
		if driver := vf.UserDriver(vf.Sysfs, device); driver != "" {
			return refusal.New(refusal.InvalidPod,
				"interface %s of pod %s/%s would be device %s with the driver %s, which has no network interface: nothing could guard its address (DPDK); use a driver of the kernel",
				a.who.Interface, a.who.Namespace, a.who.Pod, device, driver)
		}
	}
	if err != nil {
		return fmt.Errorf("find interface %s of pod %s/%s: %w", a.who.Interface, a.who.Namespace, a.who.Pod, err)
	}
	a.seg, err = a.h.OpenSegment(link.ParentIndex)
	if err != nil {
		return fmt.Errorf("open the segment of %s: %w", link.Parent, err)
	}
	a.link, a.made = link, link.MAC
	a.who.MAC = link.MAC.String()
	return nil
}

// choose returns the pools that may serve the interface, and the decision about the
// leases that are kept for it.
func (a *adding) choose(ctx context.Context) (choice ipam.Choice, kept keptDecision, err error) {
	if a.asked, err = node.FixedAddressOf(a.pod); err != nil {
		return choice, kept, err
	}
	leases, err := a.keptLeases(ctx)
	if err != nil {
		return choice, kept, err
	}
	s, err := a.h.surroundings(ctx, a.request, a.pod)
	if err != nil {
		return choice, kept, err
	}
	a.warn(s)
	if err := a.belongs(ctx, &s); err != nil {
		return choice, kept, err
	}
	return a.chooseFor(leases, s)
}

// bind binds one address of each family, and attaches the guard meanwhile.
func (a *adding) bind(ctx context.Context, choice ipam.Choice, kept keptDecision) error {
	if err := a.mayFind(choice, kept); err != nil {
		return err
	}
	for _, family := range choice.Families {
		b, err := a.bindFamily(ctx, family, kept)
		if err != nil {
			return err
		}
		a.bound, a.trying = append(a.bound, b), nil
	}
	if err := a.guard(); err != nil {
		return err
	}
	if err := a.awaitGateways(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the runtime cancelled the call: %w", context.Cause(ctx))
	}
	if a.h.Overtaken.Has(a.request.Attachment) {
		return refusal.New(refusal.TryAgain,
			"the address was taken back while ADD was under way, since pod %s/%s was gone; the next try chooses anew",
			a.who.Namespace, a.who.Pod)
	}
	return a.record()
}

// errNoSource is not reached: the last sources end with the reason why there is no address.
var errNoSource = errors.New("no source has an address")

// bindFamily wins an address of a family: it asks the sources in their order.
func (a *adding) bindFamily(ctx context.Context, f ipam.Family, kept keptDecision) (boundAddress, error) {
	l, left := kept.of(f.IPv6)
	if l != nil && poolOf(f, l) == nil { // not reached: decideKept takes only what serves
		return boundAddress{}, refusal.New(refusal.NoPool, "%s is kept for pod %s/%s, but its pool %s does not serve the pod",
			l.Spec.Address, a.who.Namespace, a.who.Pod, l.Spec.Pool)
	}
	s := &search{adding: a, family: f, kept: l}
	a.full = nil
	why := errNoSource
	for _, s.source = range a.h.sources {
		if err := s.obey(ctx, s.obeys); err != nil {
			return boundAddress{}, err
		}
		b, o := s.ask(ctx)
		if after(o, s.source) == answerWith {
			if s.learns && l == nil && !s.family.Requested.IsValid() {
				a.h.Warm.Used(b.pool.Name, a.link.Parent)
			}
			a.tellLeft(left, b)
			return b, nil
		}
		if after(o, s.source) == giveUp {
			return boundAddress{}, o.why
		}
		if o.why != nil {
			why = o.why
		}
	}
	return boundAddress{}, why
}

// ask tries the candidates of the source, until one is won or the ADD has to end. Without a candidate the
// outcome is notAddress.
func (s *search) ask(ctx context.Context) (boundAddress, outcome) {
	for c, err := range s.find(ctx, s) {
		if isExhausted(err) {
			return boundAddress{}, outcome{usedUp, err}
		}
		if err != nil {
			return boundAddress{}, ends(err)
		}
		b, o := s.win(ctx, c)
		then := after(o, s.source)
		if then == nextCandidate || then == nextSource {
			s.trying = nil
		}
		if then != nextCandidate {
			return b, o
		}
	}
	return boundAddress{}, outcome{result: notAddress}
}

// undo is a DEL of the steps done so far. A release that fails is journalled and
// left to the worker: it is no error of the ADD.
func (a *adding) undo() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.h.Background), node.UndoTimeout)
	defer cancel()
	// The slot is killed whether or not the guard was attached.
	_ = a.awaitGuard()
	if err := a.h.Release(ctx, a.entry(journal.Intent)); err != nil {
		a.h.Later(a.request.Attachment, "undo of an ADD", err)
	}
	a.restoreMAC()
}

// record journals that the interface holds its addresses.
func (a *adding) record() error {
	// From here on, a DEL keeps the address for the pod's name. Before this point it must not: the
	// next ADD of a Retained address claims before it probes, so the address must be proven.
	for i := range a.bound {
		a.bound[i].address.Static = a.keeps(a.bound[i].pool)
	}
	e := a.entry(journal.Bound)
	// The plugin sets the interface up after the answer.
	for _, b := range a.bound {
		if err := a.h.Guards.Install(&e, b.address); err != nil {
			return err
		}
	}
	if err := a.h.GuardSources(&e); err != nil {
		return err
	}
	if err := a.h.Journal.Put(e); err != nil {
		return err
	}
	a.h.Expected.Forget(a.who.PodUID, a.who.Interface)
	a.h.WakeVFs(&e)
	for _, b := range a.bound {
		if b.address.Behind != 0 {
			a.h.Pending.Add(e.Attachment())
			continue
		}
		a.h.Audit(audit.Grant, &e, b.address, "")
	}
	return nil
}
