// SPDX-License-Identifier: Apache-2.0

package release

import (
	"sync"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// Overtaken has the ADDs under way. The value is true if a verifier of this node took the lease,
// because Kubernetes no longer wants the pod. Such an ADD must not answer: its guard may be
// attached after the verifier has killed the slots. Safe for concurrent use.
type Overtaken struct {
	mu  sync.Mutex
	all map[agentapi.Attachment]bool
}

// Begin adds an ADD. Earlier kills do not count.
func (o *Overtaken) Begin(a agentapi.Attachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[agentapi.Attachment]bool{}
	}
	o.all[a] = false
}

// Add marks an ADD as overtaken, if one is under way.
func (o *Overtaken) Add(a agentapi.Attachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, underWay := o.all[a]; underWay {
		o.all[a] = true
	}
}

func (o *Overtaken) Has(a agentapi.Attachment) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[a]
}

// Forget removes an ADD that has ended.
func (o *Overtaken) Forget(a agentapi.Attachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, a)
}
