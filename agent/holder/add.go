// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/agent/waiting"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/audit"
)

// Add gives a new pod interface its addresses, all or none of them. If ctx ends first, Add undoes
// all its steps. The caller calls Answered once the plugin has the answer.
func (h *Holders) Add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
	if r.Chained {
		return h.addChained(ctx, r)
	}
	// The socket runs one call for an attachment at a time, so that a DEL cancels an ADD. The lock also
	// keeps recovery and the repairs of guards and host links away.
	defer h.Attachments.Calls.Lock(r.Attachment)()
	if o := h.reach(ctx, r); o != nil {
		return h.addWithout(ctx, r, o)
	}
	a := h.enter(r)
	for {
		res, err := a.round(ctx)
		if err == nil {
			a.place.Leave(true)
			return answer(res.Won), nil
		}
		if refusal.Waits(err) || isUnmade(err) {
			if err = a.await(ctx, res.Full, err); err == nil {
				continue
			}
			a.refused(err)
		}
		a.place.Leave(false)
		return nil, err
	}
}

// add is an ADD, with its place in the queue for full pools.
type add struct {
	h       *Holders
	request agentapi.AddRequest
	place   *waiting.Place
	// offer is the address that came free, for the next round.
	offer waiting.Offer
	// began and until are the begin and the end of the wait; zero before it begins. release: it is for an address
	// that another node keeps Warm.
	began, until time.Time
	release      bool
	// told are the reasons that events of the pod have reported.
	told []string
	// warned: events of the pod have reported its settings without effect.
	warned bool
	// muting are the dead slots that keep the interface mute: see acquire.Request.
	muting []uint32
	// application is the application of the pod, once it was read.
	application *v1alpha1.Application

	// pod and who, link and segment are those of the present round.
	pod     *corev1.Pod
	who     v1alpha1.Holder
	link    pod.Interface
	segment acquire.Segment
}

// round is one round through the sources of addresses, within the time of one call. If it fails, all its
// steps are undone. If the pools are full, the caller waits, and reports the error if the wait fails.
func (a *add) round(ctx context.Context) (res acquire.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, agentapi.CallTimeout)
	defer cancel()
	h := a.h
	h.Attachments.Calls.BeginADD(a.request.Attachment)
	defer h.Attachments.Calls.EndADD(a.request.Attachment)

	lap := h.laps()
	if err := a.begin(ctx); err != nil {
		return res, err
	}
	lap("pod")
	h.ignored.tell(h.Events, a.pod, a.request.Network)
	h.Attachments.Calls.BeginADD(a.request.Attachment) // the undo of an earlier ADD does not overtake this one
	if device := a.request.Network.Device; device != "" {
		defer h.Attachments.Calls.LockLease(device)() // two ADDs must not look for other users of it at the same time
	}
	// The steps run one after the other, because waking another thread takes as long as a step.
	if err := a.locate(); err != nil {
		return res, err
	}
	lap("interface")
	a.place.Look()
	r, err := a.choose(ctx)
	if err == nil {
		lap("pools")
		r.Lap = lap
		if res, err = h.Acquirer.Acquire(ctx, r); err != nil {
			a.muting = res.Muting
		}
	}
	switch {
	case err == nil:
		h.granted(&res.Entry)
		lap("record")
		h.After.put(res)
	case !refusal.Waits(err) && !isUnmade(err):
		a.refused(err)
	}
	return res, err
}

// begin reads the pod, and undoes an earlier ADD of the same attachment.
func (a *add) begin(ctx context.Context) (err error) {
	h, r := a.h, a.request
	if a.pod, err = h.pod(ctx, r.Pod); err != nil {
		return err
	}
	a.who = lease.HolderOf(a.pod, r.Attachment, "")
	old, ok := h.Attachments.Get(r.ContainerID, r.Interface)
	if !ok {
		return nil
	}
	// The runtime repeats an ADD without a DEL.
	if err := h.Releaser.Release(ctx, old); err != nil {
		return fmt.Errorf("release the addresses of an earlier ADD: %w", err)
	}
	if old.NetNS == r.NetNS && old.Session == h.Self.Session && !old.Unguarded {
		a.muting = append(a.muting, old.Slot)
	}
	return nil
}

// userOf returns the entry of another sandbox that lives and drives the VF of link itself. A network may
// name any device, and the fence of that sandbox must not end with a later ADD. A VF that the kernel
// drives has moved to the namespace of this ADD.
func (a *add) userOf(link pod.Interface) *attachment.Entry {
	for _, e := range a.h.Attachments.All() {
		if link.Unguarded && e.Device == link.Device && e.Session == a.h.Self.Session && e.Attachment() != a.request.Attachment && a.h.Releaser.SandboxMayLive(e) {
			return e
		}
	}
	return nil
}

// locate finds the interface, and opens the segment that it reaches.
func (a *add) locate() error {
	link, err := a.h.FindLink(a.request.NetNS, a.request.Interface)
	if device := a.request.Network.Device; errors.Is(err, pod.ErrNoInterface) && device != "" {
		if found, ok, vfErr := a.h.FindUserVF(device); ok || vfErr != nil {
			link, err = found, vfErr
		}
	}
	if err != nil {
		return fmt.Errorf("find interface %s of pod %s/%s: %w", a.who.Interface, a.who.Namespace, a.who.Pod, err)
	}
	if other := a.userOf(link); other != nil {
		return refusal.New(refusal.TryAgain,
			"VF %s is in use by pod %s/%s, which lives: let the device plugin choose the VF instead of naming it in the network, or delete that pod",
			link.Device, other.PodNamespace, other.PodName)
	}
	if a.request.Network.Type == "ovs" && link.NodeEnd == 0 {
		return refusal.New(refusal.InvalidRequest,
			"network %s gives a VF to the pod: its VLAN is that of a port of Open vSwitch, which is not looked up; remove deviceID, or let the plugin sriov give the VF",
			a.request.Network.Name)
	}
	if a.request.Network.IsGateway && link.NodeEnd != 0 {
		return refusal.New(refusal.InvalidRequest,
			"network %s has isGateway or isDefaultGateway: the plugin would give the bridge of each node the address of the gateway of the segment; remove it, and set spec.gateway of the pool",
			a.request.Network.Name)
	}
	if a.segment, err = a.h.OpenSegment(link.Parent.Index); err != nil {
		return fmt.Errorf("open the segment of %s: %w", link.Parent.Name, err)
	}
	a.link, a.who.MAC = link, link.MAC.String()
	return nil
}

// choose returns the request for addresses: the pools that may serve the interface, and the decision
// about kept leases.
func (a *add) choose(ctx context.Context) (r acquire.Request, err error) {
	asked, err := acquire.FixedAddressOf(a.pod)
	if err != nil {
		return r, err
	}
	leases, err := a.keptLeases(ctx)
	if err != nil {
		return r, err
	}
	s, err := a.h.surroundings(ctx, a.request, a.pod)
	if err != nil {
		return r, err
	}
	a.warn(s)
	if err := a.belongs(ctx, &s); err != nil {
		return r, err
	}
	if len(leases) > 0 || slices.ContainsFunc(s.pools, func(p v1alpha1.IPPool) bool { return len(p.Spec.Parents) > 0 }) {
		if s.request.Parent, err = a.h.ParentOf(a.link.Parent.Index); err != nil {
			return r, fmt.Errorf("find the parent of interface %s: %w", a.who.Interface, err)
		}
	}
	r = acquire.Request{
		Call: a.request, Pod: a.pod, Holder: a.who, Link: a.link, Segment: a.segment, Asked: asked,
		Place: a.place, Offer: a.offer, Muting: a.muting,
	}
	r.Choice, r.Kept, err = a.h.Acquirer.Choose(r, leases, s.request, s.pools, s.reserved)
	return r, err
}

// granted tells the others about an interface that has its addresses.
func (h *Holders) granted(e *attachment.Entry) {
	h.WakeSources()
	h.Releaser.Expected.Forget(e.PodUID, e.Interface)
	h.WakeVFs()
	for _, address := range e.Addresses {
		if address.Behind != 0 || address.Waits {
			h.Attachments.Pending.Add(e.Attachment())
			continue
		}
		audit.Log(h.Log, audit.Grant, e.Audit(address, h.Self.Name, ""))
	}
}

// laps returns a function that counts the time of a step of an ADD at its end. The step began at
// the end of the last one.
func (h *Holders) laps() func(step string) {
	last := h.Clock.Now()
	return func(step string) {
		now := h.Clock.Now()
		h.Step(step, now.Sub(last))
		last = now
	}
}

// answer returns the addresses with their gateways, and the routes, for the runtime to configure.
func answer(all []acquire.Won) *agentapi.AddResponse {
	var r agentapi.AddResponse
	for _, w := range all {
		r.IPs = append(r.IPs, w.Address.Given.IP)
		r.Routes = append(r.Routes, w.Address.Given.Routes...)
	}
	return &r
}
