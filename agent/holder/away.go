// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/lease"
)

// reach reads the node from the API server if the last ADD could not reach it. An
// ADD that cannot be answered (R5) then takes no slot and writes nothing, however
// often the runtime tries in a long outage.
func (h *Holders) reach(ctx context.Context) error {
	if !h.away.Load() {
		return nil
	}
	err := h.Reader.Get(ctx, client.ObjectKey{Name: h.Node}, &corev1.Node{})
	if lease.IsUnavailable(err) {
		return fmt.Errorf("read node %s: %w", h.Node, err)
	}
	h.away.Store(false)
	return nil
}
