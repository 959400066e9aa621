// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/loop"
)

// claimTimeout bounds a claim after the answer. A busy pacer of the parent may delay it.
const claimTimeout = 2 * time.Second

// After does the steps that follow the answers of ADDs. Its methods may be called concurrently.
type After struct {
	o Options
	// unanswered has the acquire.Result of each attachment whose answer is being sent.
	unanswered sync.Map
	// tasks are the steps that follow an answer.
	tasks sync.WaitGroup
	// following is derived from Background. Its end stops the readings of MACs.
	following    context.Context
	endFollowing context.CancelFunc
}

func newAfter(o Options) *After {
	a := &After{o: o}
	a.following, a.endFollowing = context.WithCancel(o.Background)
	return a
}

// Wait returns once the steps after the answers of all ADDs are done. It ends the readings of MACs.
// No ADD may be under way.
func (a *After) Wait() {
	a.endFollowing()
	a.tasks.Wait()
}

// put notes an ADD whose answer is to be sent.
func (a *After) put(r acquire.Result) { a.unanswered.Store(r.Entry.Attachment(), r) }

// forget drops an ADD whose attachment is released.
func (a *After) forget(of agentapi.Attachment) { a.unanswered.Delete(of) }

// Answered begins the steps that follow the answer: the claim of an address that was Warm, the
// announcement, and the pin of the guard. If the agent ends first, the next agent does them.
func (a *After) Answered(of agentapi.Attachment) {
	found, is := a.unanswered.LoadAndDelete(of)
	if !is {
		return
	}
	r := found.(acquire.Result)
	for _, w := range r.Won {
		a.announce(r, w)
	}
	a.tasks.Go(func() {
		loop.For(a.o.Background, a.o.Clock, attachment.PinDelay, nil)
		// Wait before the turn of this pin, so that many pins wait at the same time.
		a.o.Attachments.Calls.GiveWay(a.o.Background, a.o.Clock)
		a.o.Guards.Pin(a.o.Background, r.Entry)
	})
	a.tasks.Go(func() { a.follow(of) })
}

// announce announces the new holder to the segment once the link is up.
func (a *After) announce(r acquire.Result, w acquire.Won) {
	switch {
	case w.Address.Behind != 0, w.Address.Waits: // the machine still runs elsewhere
	case w.Unclaimed != nil:
		a.tasks.Go(func() { a.claimLate(r, w) })
	case r.Entry.Unguarded: // the program that drives the VF announces it
	default:
		r.Segment.Announce(segment.Announcement{
			NetNS: r.Entry.NetNS, Interface: r.Entry.Interface, NodeEnd: r.Entry.NodeEnd, MAC: r.MAC, Addr: w.Address.Addr,
			Slot: r.Entry.Slot, Mode: w.Address.PoolThen().ConflictMode(),
		})
	}
}

// claimLate claims an address after the answer, and announces it only if no newer
// claim exists (R10). The runtime has not set the link up yet.
func (a *After) claimLate(r acquire.Result, w acquire.Won) {
	// When the agent ends, it still answers its ADDs and claims their addresses.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.o.Background), claimTimeout)
	defer cancel()
	err := r.Segment.ClaimAndConfirm(ctx, *w.Unclaimed)
	switch {
	case err == nil, errors.Is(err, segment.ErrNoKey): // without a claim key the probe alone protects it
		w.Unclaimed = nil
		a.announce(r, w)
	case errors.Is(err, segment.ErrFenced):
		// A GET of the lease decides, as for every fence (R7).
		a.o.Attachments.Pending.Add(r.Entry.Attachment())
	default:
		// The claim is repeated within a minute (R3), and the pod announces itself.
		a.o.Log.Info("an address is in use, but not claimed yet", "address", w.Address.Addr, "why", err.Error())
	}
}
