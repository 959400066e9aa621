// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/event"
)

// addChained checks that an interface of another plugin is guarded. The IPAM ADD of the same
// interface has leased its addresses. Plugins in between may have changed the MAC.
func (h *Holders) addChained(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
	if err := h.checkHeld(r.Attachment, r.Configured); err != nil {
		return nil, err
	}
	if e, _ := h.Attachments.Get(r.ContainerID, r.Interface); e.Unguarded {
		return &agentapi.AddResponse{MAC: e.MAC}, nil // the kernel of the pod routes nothing through it
	}
	if err := h.After.settle(r.Attachment); err != nil {
		return nil, err
	}
	if err := h.route(ctx, r); err != nil {
		return nil, err
	}
	e, _ := h.Attachments.Get(r.ContainerID, r.Interface)
	if len(r.Network.Ignored) > 0 && !e.HasMoved() {
		pod, err := h.pod(ctx, r.Pod)
		if err != nil {
			return nil, err
		}
		h.ignored.tell(h.Events, pod, r.Network)
	}
	return &agentapi.AddResponse{MAC: e.MAC}, nil
}

// Check returns an error unless an attachment holds its addresses and is guarded, and its interface
// and routing are complete. The plugins set the address after IPAM, so only a chained CHECK looks
// at the interface and its routing.
func (h *Holders) Check(_ context.Context, r agentapi.CheckRequest) error {
	of := h.adopted(r.Attachment, r.NetNS)
	if err := h.checkHeld(of, r.Configured); err != nil || !r.Chained {
		return err
	}
	e, ok := h.Attachments.Get(of.ContainerID, of.Interface)
	if !ok || e.Unguarded || e.Adopted {
		return nil // a DEL has come meanwhile, or it has no routes of ours
	}
	return h.HostLinks.Check(&e)
}

func (h *Holders) checkHeld(a agentapi.Attachment, configured []agentapi.ConfiguredAddress) error {
	e, ok := h.Attachments.Get(a.ContainerID, a.Interface)
	if !ok || e.Phase != attachment.Bound {
		return refusal.New(refusal.NotHeld,
			"interface %s of container %s holds no address of Fenceline; is its ipam type fenceline?", a.Interface, a.ContainerID)
	}
	attached, err := h.Guards.Attached(&e)
	if err != nil {
		return err
	}
	if !attached {
		return refusal.New(refusal.NotHeld, "interface %s of container %s is not guarded", a.Interface, a.ContainerID)
	}
	for _, address := range e.Addresses {
		fenced, err := h.Guards.Leases.Fenced(&e, address)
		if err != nil {
			return err
		}
		if fenced && address.Behind == 0 {
			return refusal.New(refusal.NotHeld, "%s was taken from interface %s of container %s and is fenced", address.Addr, a.Interface, a.ContainerID)
		}
		if len(configured) > 0 && !isConfigured(configured, address) {
			return refusal.New(refusal.NotHeld,
				"%s is leased to interface %s of container %s and not configured there", address.Addr, a.Interface, a.ContainerID)
		}
	}
	return nil
}

func isConfigured(configured []agentapi.ConfiguredAddress, address attachment.Address) bool {
	return slices.ContainsFunc(configured, func(c agentapi.ConfiguredAddress) bool {
		return c.Address.Addr().Unmap() == address.Addr
	})
}

// GC releases every attachment of a network that the runtime no longer knows. That the list lacks an
// attachment is no evidence of its end: two networks may have one name, and then each list has half of
// the attachments. So a sandbox that may live keeps its addresses, unless the list names another sandbox
// of its pod.
func (h *Holders) GC(ctx context.Context, r agentapi.GCRequest) error {
	valid := make(map[agentapi.Attachment]bool, len(r.Valid))
	for _, a := range r.Valid {
		valid[a] = true
	}
	var errs []error
	var living []string
	for _, e := range h.Attachments.All() {
		a := e.Attachment()
		isReplaced := func(o *attachment.Entry) bool { return o.Interface == e.Interface && valid[o.Attachment()] }
		switch {
		case e.Adopted || e.Network != r.Network || valid[a]:
		case h.Releaser.MayLive(ctx, e) && !slices.ContainsFunc(h.Attachments.OfPod(e.PodUID), isReplaced):
			living = append(living, e.PodNamespace+"/"+e.PodName)
		default:
			errs = append(errs, h.letGo(ctx, a))
		}
	}
	if len(living) > 0 {
		slices.Sort(living)
		event.Reporter{Node: h.Self.Name, Events: h.Events}.NodeEventf(corev1.EventTypeWarning, "GCIncomplete", "GC",
			"GC of network %q does not name %d interfaces of pods that live, such as pod %s: they keep their addresses; give each network a name of its own",
			r.Network, len(living), living[0])
	}
	return errors.Join(errs...)
}

// Del fences and frees the addresses of an attachment. It returns nil once the release is on disk:
// if the API server is unreachable, the worker carries it out later.
func (h *Holders) Del(ctx context.Context, r agentapi.DelRequest) error {
	if r.Chained {
		return nil // the IPAM DEL of the same interface does the work
	}
	return h.letGo(ctx, h.adopted(r.Attachment, r.NetNS))
}

// letGo releases an attachment, now or later.
func (h *Holders) letGo(ctx context.Context, a agentapi.Attachment) error {
	defer h.Attachments.Calls.Lock(a)()
	h.After.forget(a)
	return h.Releaser.LetGo(ctx, a)
}
