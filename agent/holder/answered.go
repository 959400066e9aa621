// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"time"

	"github.com/fenceline/fenceline/agent/holder/node"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// claimTimeout bounds a claim after the answer. It takes tens of milliseconds, and
// longer if the parent's pacer is busy.
const claimTimeout = 2 * time.Second

// Answered begins the steps that an ADD leaves for the time after its answer: the claim of an
// address that was Warm, the announcement, and the pin of the guard. If the agent ends first, the
// next agent does them.
func (h *Holders) Answered(of agentapi.Attachment) {
	a := h.unanswered.remove(of)
	if a == nil {
		return
	}
	for _, b := range a.bound {
		a.announce(b)
	}
	h.Tasks.Go(func() {
		node.Pause(h.Background, h.Clock, node.PinDelay)
		// Wait before the turn of this pin, so that many pins wait at the same time.
		h.GiveWay()
		h.Guards.Pin(h.Background, a.entry(journal.Bound))
		h.Guards.Prepare(h.Background, a.link.ParentIndex)
	})
	h.Tasks.Go(func() { h.follow(of) })
}

// announce announces the new holder to the segment once the link is up.
func (a *adding) announce(b boundAddress) {
	if b.address.Behind != 0 {
		return // its holder speaks
	}
	if b.unclaimed != nil {
		a.h.Tasks.Go(func() { a.claimLate(b) })
		return
	}
	a.seg.Announce(segment.Announcement{
		NetNS: a.request.NetNS, Interface: a.request.Interface, MAC: a.link.MAC, Addr: b.address.Addr,
		Slot: a.slot, Mode: b.pool.ConflictMode(),
	})
}

// claimLate claims an address after the answer, and announces it only if no newer
// claim exists (R10). The runtime has not set the link up yet.
func (a *adding) claimLate(b boundAddress) {
	// When the agent ends, it still answers its ADDs and claims their addresses.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.h.Background), claimTimeout)
	defer cancel()
	err := a.seg.ClaimAndConfirm(ctx, *b.unclaimed)
	switch {
	case err == nil, errors.Is(err, segment.ErrNoKey): // without a claim key the probe alone protects it
		b.unclaimed = nil
		a.announce(b)
	case errors.Is(err, segment.ErrFenced):
		// A GET decides, as for every fence (R7).
		a.h.Pending.Add(a.request.Attachment)
	default:
		// The claim is repeated within a minute (R3), and the pod announces itself.
		a.h.Log.Info("an address is in use, but not claimed yet", "address", b.address.Addr, "why", err.Error())
	}
}
