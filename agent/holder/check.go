package holder

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/cni/agentapi"
)

func agentAttachment(e *journal.Entry) agentapi.Attachment {
	return agentapi.Attachment{ContainerID: e.ContainerID, Interface: e.Interface}
}

// addChained sees to it that an interface which another plugin configured is
// guarded: the addresses leased by IPAM ADD of the same interface are.
func (h *Holders) addChained(r agentapi.AddRequest) (*agentapi.AddResponse, error) {
	if err := h.checkHeld(r.Attachment, r.Configured); err != nil {
		return nil, err
	}
	return &agentapi.AddResponse{}, nil
}

// Check tells whether an attachment still holds its addresses and is guarded.
func (h *Holders) Check(_ context.Context, r agentapi.CheckRequest) error {
	return h.checkHeld(r.Attachment, r.Configured)
}

func (h *Holders) checkHeld(a agentapi.Attachment, configured []agentapi.ConfiguredAddress) error {
	e, ok := h.Journal.Get(a.ContainerID, a.Interface)
	if !ok || e.Phase != journal.Bound {
		return agentapi.Errorf(agentapi.CodeNotHeld,
			"interface %s of container %s holds no address of Fenceline; is its ipam type fenceline?", a.Interface, a.ContainerID)
	}
	attached, err := h.Kernel.GuardAttached(e.Slot)
	if err != nil {
		return fmt.Errorf("look for the guard of %s: %w", a.Interface, err)
	}
	if !attached {
		return agentapi.Errorf(agentapi.CodeNotHeld, "interface %s of container %s is not guarded", a.Interface, a.ContainerID)
	}
	for _, address := range e.Addresses {
		fenced, err := h.Kernel.Fenced(keyOf(&e, address))
		if err != nil {
			return fmt.Errorf("see whether %s is fenced: %w", address.Addr, err)
		}
		if fenced {
			return agentapi.Errorf(agentapi.CodeNotHeld, "%s was taken from interface %s of container %s and is fenced", address.Addr, a.Interface, a.ContainerID)
		}
		if len(configured) > 0 && !isConfigured(configured, address) {
			return agentapi.Errorf(agentapi.CodeNotHeld,
				"%s is leased to interface %s of container %s and not configured there", address.Addr, a.Interface, a.ContainerID)
		}
	}
	return nil
}

func isConfigured(configured []agentapi.ConfiguredAddress, address journal.Address) bool {
	for _, c := range configured {
		if c.Address.Addr().Unmap() == address.Addr {
			return true
		}
	}
	return false
}

// GC releases every attachment of a network that the runtime does not know any more.
func (h *Holders) GC(ctx context.Context, r agentapi.GCRequest) error {
	valid := make(map[attachment]bool, len(r.Valid))
	for _, a := range r.Valid {
		valid[attachment{a.ContainerID, a.Interface}] = true
	}
	var errs []error
	for _, e := range h.Journal.All() {
		if a := attachmentOf(e); e.Network == r.Network && !valid[a] {
			errs = append(errs, h.letGo(ctx, a))
		}
	}
	return errors.Join(errs...)
}
