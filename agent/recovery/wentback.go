// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"iter"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/event"
)

// WentBackOptions of a WentBack. All are required.
type WentBackOptions struct {
	event.Reporter
	// Bound yields the journal entries of the pod interfaces that hold addresses now.
	Bound func() iter.Seq[*attachment.Entry]
	// CaughtUp is called when the store has reached every token again: leases can be written.
	CaughtUp func()
	// TokensAhead sets the metric.
	TokensAhead func(addresses int)
}

// WentBack reports when the API server's store went back behind the
// tokens of this node's addresses, as after a restore from a backup.
//
// WentBack compares the tokens of this node's addresses with the store. One goroutine may use it.
type WentBack struct {
	WentBackOptions
	// reported is set while the store is behind and an event of the node reports it.
	reported bool
}

// NewWentBack returns a WentBack.
func NewWentBack(o WentBackOptions) *WentBack { return &WentBack{WentBackOptions: o} }

// StoreIsAt handles the store's revision as last read. When the store falls
// behind a token, it makes one log line and one event.
func (w *WentBack) StoreIsAt(live uint64) {
	ahead := 0
	for e := range w.Bound() {
		for _, address := range e.Addresses {
			if address.Token > live {
				ahead++
			}
		}
	}
	w.TokensAhead(ahead)
	switch {
	case ahead > 0 && w.reported:
		return
	case ahead == 0 && w.reported:
		w.CaughtUp()
	}
	if w.reported = ahead > 0; !w.reported {
		return
	}
	w.Log.Error(nil, "the store went back: it has not reached the tokens of addresses of this node", "addresses", ahead, "revision", live)
	w.NodeEventf(corev1.EventTypeWarning, string(v1alpha1.ReasonStoreWentBack), "Watch",
		"the API server's store is at revision %d, behind the tokens of %d addresses of this node: they stay with their pods and cannot be taken by force; was a backup restored without --bump-revision?",
		live, ahead)
}
