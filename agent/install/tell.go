// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/internal/event"
)

// tellInterval is the shortest time between two events about one file that was put back.
const tellInterval = 10 * time.Minute

// subject is the kind of a kept file, with its words in events.
type subject struct{ name, restored, missing, effect string }

var (
	pluginSubject = subject{
		name: "the CNI plugin", restored: "PluginRestored", missing: "PluginNotInstalled",
		effect: "without it no pod starts or ends on this node; make the directory of the chart's value cni.binDir writable, without noexec",
	}
	networkSubject = subject{
		name: "the network configuration", restored: "NetworkRestored", missing: "NetworkNotInstalled",
		effect: "without it the runtime does not know the network; make the directory of the chart's value cni.confDir writable",
	}
)

// teller reports to the log and by events of the node. A nil teller is silent.
type teller struct{ event.Reporter }

// restored reports that a file was put back. If something removes the file again and again, only
// one event in tellInterval reports it.
func (t *teller) restored(k *kept, now time.Time) {
	if t == nil {
		return
	}
	if k.untold++; !k.told.IsZero() && now.Sub(k.told) < tellInterval {
		return
	}
	t.Log.Info(k.what.name+" was changed or removed, and the agent put it back", "file", k.path, "times", k.untold)
	times := ""
	if k.untold > 1 {
		times = fmt.Sprintf(" (%d times since the last event)", k.untold)
	}
	t.NodeEventf(corev1.EventTypeWarning, k.what.restored, "Install",
		"%s %s was changed or removed, and the agent put it back%s", k.what.name, k.path, times)
	k.told, k.untold = now, 0
}

// failed reports a new error. ErrNotConflist ends the agent, which prints it.
func (t *teller) failed(k *kept, err error) {
	if t == nil || errors.Is(err, ErrNotConflist) || !k.errors.IsNew(err) {
		return
	}
	if errors.Is(err, ErrDirectoryGone) {
		t.NodeEventf(corev1.EventTypeWarning, k.what.missing, "Install", "%s %s: %s", k.what.name, k.path, err)
		return
	}
	t.Log.Error(err, k.what.name+" could not be installed; the agent tries again", "file", k.path)
	t.NodeEventf(corev1.EventTypeWarning, k.what.missing, "Install", "%s: %s; the agent tries again", err, k.what.effect)
}
