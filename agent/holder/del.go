// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// Del fences and frees the addresses of an attachment. It returns nil once the release is on disk:
// if the API server is unreachable, the worker carries it out later.
func (h *Holders) Del(ctx context.Context, r agentapi.DelRequest) error {
	if r.Chained {
		return nil // the IPAM DEL of the same interface does the work
	}
	return h.letGo(ctx, r.Attachment)
}

// letGo releases an attachment, now or later.
func (h *Holders) letGo(ctx context.Context, a agentapi.Attachment) error {
	defer h.LockAttachment(a)()
	h.Forget(a)
	return h.LetGo(ctx, a)
}
