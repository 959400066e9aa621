// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"sync"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// overtaken has the ADDs under way. The value is true if a verifier of this node took the lease,
// because Kubernetes no longer wants the pod. Such an ADD must not answer: its guard may be
// attached after the verifier has killed the slots. Safe for concurrent use.
type overtaken struct {
	mu  sync.Mutex
	all map[agentapi.Attachment]bool
}

// begin adds an ADD. Earlier kills do not count.
func (o *overtaken) begin(a agentapi.Attachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[agentapi.Attachment]bool{}
	}
	o.all[a] = false
}

// add marks an ADD as overtaken, if one is under way.
func (o *overtaken) add(a agentapi.Attachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, underWay := o.all[a]; underWay {
		o.all[a] = true
	}
}

func (o *overtaken) has(a agentapi.Attachment) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[a]
}

// forget removes an ADD that has ended.
func (o *overtaken) forget(a agentapi.Attachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, a)
}
