// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/internal/event"
)

// tellInterval is the shortest time between two reports that a parent is mute.
const tellInterval = 10 * time.Minute

// Mute reports parents whose frames no other host hears, as events of the node.
//
// Mute records an event when a parent becomes mute, and when it is heard again. Its methods are
// safe for concurrent use, and do not block.
type Mute struct {
	event.Reporter
	mu    sync.Mutex
	mutes map[string]muteness
}

// muteness is the last report that a parent is mute.
type muteness struct {
	told time.Time
	// lasts: the parent was not reported as heard since.
	lasts bool
}

// NewMute returns a Mute.
func NewMute(r event.Reporter) *Mute { return &Mute{Reporter: r, mutes: map[string]muteness{}} }

// Asked handles the end of a question to canaries on a parent. heard: a canary has answered. A
// flapping parent makes at most one pair of events in ten minutes.
func (m *Mute) Asked(parent string, heard bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, known := m.mutes[parent]
	switch {
	case heard && last.lasts:
		m.mutes[parent] = muteness{told: last.told}
		m.Log.Info("another host hears this parent again", "parent", parent)
		m.NodeEventf(corev1.EventTypeNormal, "ParentHeard", "Verify", "another host hears %s again", parent)
	case !heard && !last.lasts && (!known || m.Clock.Since(last.told) >= tellInterval):
		m.mutes[parent] = muteness{told: m.Clock.Now(), lasts: true}
		m.Log.Error(nil, "no other host answers on this parent", "parent", parent)
		m.NodeEventf(corev1.EventTypeWarning, "ParentMute", "Verify",
			"neither the gateway nor another host answers on %s: its frames may be lost, so silence there proves nothing, and addresses that this node verifies stay Quarantined; check cable, VLAN and port security of the switch", parent)
	}
}
