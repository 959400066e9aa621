// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"net/netip"
	"sync/atomic"

	"github.com/fenceline/fenceline/agent/node"
	"github.com/fenceline/fenceline/agent/release"
)

// Holders are the pod interfaces of this node. Its methods may be called concurrently.
type Holders struct {
	*node.Base
	*release.Releaser
	*After

	ignored ignored
	// away: the last ADD could not reach the API server when it bound its address.
	away atomic.Bool
}

// New returns the Holders of the journal. An undo and the steps after an answer end with ctx.
func New(ctx context.Context, o node.Options) *Holders {
	b := node.New(ctx, o)
	return &Holders{Base: b, Releaser: release.New(b), After: NewAfter(b)}
}

// Fenced handles a newer claim for an address held here: recovery reads the lease.
func (h *Holders) Fenced(parent int, addr netip.Addr) {
	if e, _, ok := h.Journal.Holder(parent, addr); ok {
		h.Journal.Pending.Add(e.Attachment())
		// The node must reach the new holder by the underlay.
		h.HostLinks.Wake(e.Attachment())
		h.WakeVFs(&e)
	}
}
