// SPDX-License-Identifier: Apache-2.0

// Package event bounds the notes and the number of events, and names the objects that they are about.
// The API server refuses a note of more than 1024 bytes.
package event

import (
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// MaxNote is the length of the longest note that the API server accepts, in bytes.
const MaxNote = 1024

// Recorder shortens notes that are too long. Put the important part of a note first.
type Recorder struct{ To events.EventRecorder }

// Eventf implements events.EventRecorder.
func (r Recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.To.Eventf(regarding, related, kind, reason, action, "%s", Cut(fmt.Sprintf(note, args...)))
}

// Cut shortens a text to the length of a note.
func Cut(text string) string {
	if len(text) <= MaxNote {
		return text
	}
	return strings.ToValidUTF8(text[:MaxNote-3], "") + "..."
}

const (
	// perSecond is how many events are written per second after the burst. Each takes about 2 ms of
	// the API server's CPU time.
	perSecond = 10
	// burst is how many events are written at once: all events of an ordinary day.
	burst = 50
)

// Paced writes events up to a rate. It logs the others instead. Metrics and audit lines do not
// depend on it. Without a limit, the events of 2000 reclaims at once cost a quarter of the reclaims
// per second, and delay ADDs at the API server. Safe for concurrent use.
type Paced struct {
	to      events.EventRecorder
	limiter flowcontrol.PassiveRateLimiter
	log     logr.Logger
}

// NewPaced returns a recorder that writes to another recorder, at the pace of the clock.
func NewPaced(to events.EventRecorder, c clock.PassiveClock, log logr.Logger) Paced {
	return Paced{to: to, limiter: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(perSecond, burst, c), log: log}
}

// Eventf implements events.EventRecorder.
func (p Paced) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	if p.limiter.TryAccept() {
		p.to.Eventf(regarding, related, kind, reason, action, note, args...)
		return
	}
	var name string
	if o, ok := regarding.(client.Object); ok {
		name = client.ObjectKeyFromObject(o).String()
	}
	p.log.Info("too many events at once: this event is in the log only", "object", name, "reason", reason, "note", fmt.Sprintf(note, args...))
}

// Pod names a pod for an event. The pod need not exist any more.
func Pod(namespace, name, uid string) runtime.Object {
	p := &corev1.Pod{}
	p.APIVersion, p.Kind = "v1", "Pod"
	p.Namespace, p.Name, p.UID = namespace, name, types.UID(uid)
	return p
}

// Reporter is what a part of the agent needs to report about its node.
type Reporter struct {
	// Node is the name of this node.
	Node   string
	Events events.EventRecorder
	Log    logr.Logger
	Clock  clock.WithTicker
}

// NodeEventf writes an event of the node.
func (r Reporter) NodeEventf(kind, reason, action, note string, args ...any) {
	n := &corev1.Node{}
	n.APIVersion, n.Kind, n.Name = "v1", "Node", r.Node
	r.Events.Eventf(n, nil, kind, reason, action, note, args...)
}
