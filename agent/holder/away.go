package holder

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/lease"
)

// reach asks the API server for a sign of life if the last ADD got none from
// it. An ADD that cannot be answered (R5) then takes no slot and leaves no
// trace, however often the runtime tries in a long outage.
func (h *Holders) reach(ctx context.Context) error {
	if !h.away.Load() {
		return nil
	}
	err := h.Reader.Get(ctx, clientKey(h.Node), &corev1.Node{})
	if lease.IsUnavailable(err) {
		return unavailable(fmt.Errorf("read node %s: %w", h.Node, err))
	}
	h.away.Store(false)
	return nil
}
