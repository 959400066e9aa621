// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/node"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/loop"
)

// claimTimeout bounds a claim after the answer. A busy pacer of the parent may delay it.
const claimTimeout = 2 * time.Second

// After does the steps that follow the answers of ADDs. Its methods may be called concurrently.
type After struct {
	*node.Base
	// unanswered has the *win.Interface of each attachment whose answer is being sent.
	unanswered sync.Map
	// following is derived from Background. Its end stops the readings of MACs.
	following    context.Context
	endFollowing context.CancelFunc
}

// NewAfter returns an After. Its work ends with the Background of the node.
func NewAfter(b *node.Base) *After {
	a := &After{Base: b}
	a.following, a.endFollowing = context.WithCancel(b.Background)
	return a
}

// Wait returns once the steps after the answers of all ADDs are done. It ends the readings of MACs.
// No ADD may be under way.
func (h *After) Wait() {
	h.endFollowing()
	h.Tasks.Wait()
}

// Put notes an ADD whose answer is to be sent.
func (h *After) Put(i *acquire.Interface) { h.unanswered.Store(i.Request.Attachment, i) }

// Forget drops an ADD whose attachment is released.
func (h *After) Forget(of agentapi.Attachment) { h.unanswered.Delete(of) }

// Answered begins the steps that follow the answer: the claim of an address that was Warm, the
// announcement, and the pin of the guard. If the agent ends first, the next agent does them.
func (h *After) Answered(of agentapi.Attachment) {
	add, is := h.unanswered.LoadAndDelete(of)
	if !is {
		return
	}
	i := add.(*acquire.Interface)
	for _, b := range i.Won {
		h.announce(i, b)
	}
	h.Tasks.Go(func() {
		loop.For(h.Background, h.Clock, attachment.PinDelay, nil)
		// Wait before the turn of this pin, so that many pins wait at the same time.
		h.Journal.Calls.GiveWay(h.Background, h.Clock)
		h.Guards.Pin(h.Background, i.Entry(attachment.Bound))
	})
	h.Tasks.Go(func() { h.follow(of) })
}

// announce announces the new holder to the segment once the link is up.
func (h *After) announce(i *acquire.Interface, b acquire.Bound) {
	switch {
	case b.Address.Behind != 0: // its holder still uses the address
	case b.Unclaimed != nil:
		h.Tasks.Go(func() { h.claimLate(i, b) })
	case i.Link.Unguarded: // the program that drives the VF announces it
	default:
		i.Seg.Announce(segment.Announcement{
			NetNS: i.Request.NetNS, Interface: i.Request.Interface, MAC: i.Link.MAC, Addr: b.Address.Addr,
			Slot: i.Slot, Mode: b.Pool.ConflictMode(),
		})
	}
}

// claimLate claims an address after the answer, and announces it only if no newer
// claim exists (R10). The runtime has not set the link up yet.
func (h *After) claimLate(i *acquire.Interface, b acquire.Bound) {
	// When the agent ends, it still answers its ADDs and claims their addresses.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.Background), claimTimeout)
	defer cancel()
	err := i.Seg.ClaimAndConfirm(ctx, *b.Unclaimed)
	switch {
	case err == nil, errors.Is(err, segment.ErrNoKey): // without a claim key the probe alone protects it
		b.Unclaimed = nil
		h.announce(i, b)
	case errors.Is(err, segment.ErrFenced):
		// A GET of the lease decides, as for every fence (R7).
		h.Journal.Pending.Add(i.Request.Attachment)
	default:
		// The claim is repeated within a minute (R3), and the pod announces itself.
		h.Log.Info("an address is in use, but not claimed yet", "address", b.Address.Addr, "why", err.Error())
	}
}
