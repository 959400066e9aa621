// SPDX-License-Identifier: Apache-2.0

// Package eventpace limits how many events the controller writes. Without a limit, the events of
// 2000 reclaims at once cost a quarter of the reclaims per second, and delay ADDs at the API server.
package eventpace

import (
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// perSecond is how many events are written per second after the burst. Each takes about 2 ms of
	// the API server's CPU time.
	perSecond = 10
	// burst is how many events are written at once: all events of an ordinary day.
	burst = 50
)

// Recorder writes events up to a rate. It logs the others instead. Metrics and audit lines do not
// depend on it. Safe for concurrent use.
type Recorder struct {
	to      events.EventRecorder
	limiter flowcontrol.PassiveRateLimiter
	log     logr.Logger
}

// New returns a recorder that writes to another recorder, at the pace of the clock.
func New(to events.EventRecorder, c clock.PassiveClock, log logr.Logger) Recorder {
	return Recorder{to: to, limiter: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(perSecond, burst, c), log: log}
}

// Eventf implements events.EventRecorder.
func (r Recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	if r.limiter.TryAccept() {
		r.to.Eventf(regarding, related, kind, reason, action, note, args...)
		return
	}
	var name string
	if o, ok := regarding.(client.Object); ok {
		name = client.ObjectKeyFromObject(o).String()
	}
	r.log.Info("too many events at once: this event is in the log only", "object", name, "reason", reason, "note", fmt.Sprintf(note, args...))
}
