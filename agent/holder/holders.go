// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"sync/atomic"

	"github.com/fenceline/fenceline/agent/holder/node"
	"github.com/fenceline/fenceline/agent/holder/release"
	"github.com/fenceline/fenceline/bpf"
)

// Holders are the pod interfaces of this node with their addresses. Its
// methods may be called concurrently.
type Holders struct {
	*node.Base
	*release.Releaser

	unanswered unanswered
	ignored    ignored

	// sources in the order in which an ADD asks them.
	sources []source
	// away is set while the last ADD could not reach the API server.
	away atomic.Bool
	// following is the part of Background in which the MACs of new interfaces are read.
	following    context.Context
	endFollowing context.CancelFunc
}

// New returns the Holders that the journal records. The undo of an ADD and the steps
// after an answer end with ctx.
func New(ctx context.Context, o node.Options) *Holders {
	b := node.New(ctx, o)
	h := &Holders{Base: b, Releaser: &release.Releaser{Base: b}, sources: sources()}
	h.following, h.endFollowing = context.WithCancel(ctx)
	return h
}

// Wait returns once the steps after the answers of all ADDs are done. It ends the readings of MACs.
// No ADD may be under way.
func (h *Holders) Wait() {
	h.endFollowing()
	h.Tasks.Wait()
}

// Fenced handles a newer claim for an address held here: recovery reads the lease.
func (h *Holders) Fenced(key bpf.Key) {
	if e, _, ok := h.Holder(key); ok {
		h.Pending.Add(e.Attachment())
		// The node must reach the new holder by the underlay.
		h.HostLinks.Wake(e.Attachment())
		h.WakeVFs(&e)
	}
}
