// SPDX-License-Identifier: Apache-2.0

package release

import (
	"sync"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// Overtaken has the ADDs under way. The value is true if a verifier of this node took the lease,
// because Kubernetes no longer wants the pod. Such an ADD must not answer: its guard may be
// attached after the verifier has killed the slots. Safe for concurrent use.
type Overtaken struct{ all sync.Map }

// Begin adds an ADD. Earlier kills do not count.
func (o *Overtaken) Begin(a agentapi.Attachment) { o.all.Store(a, false) }

// Add marks an ADD as overtaken, if one is under way.
func (o *Overtaken) Add(a agentapi.Attachment) { o.all.CompareAndSwap(a, false, true) }

// Has reports whether an ADD is overtaken.
func (o *Overtaken) Has(a agentapi.Attachment) bool {
	is, underWay := o.all.Load(a)
	return underWay && is.(bool)
}

// Forget removes an ADD that has ended.
func (o *Overtaken) Forget(a agentapi.Attachment) { o.all.Delete(a) }
