// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// eventLimit is the time in which a report must arrive.
const eventLimit = 20 * time.Second

// event waits for an event about a pod whose message has the text.
func (a *act) event(ctx context.Context, pod, reason, text string) *corev1.Event {
	return a.eventOf(ctx, "Pod", pod, reason, text)
}

// eventOf waits for an event about an object whose message has the text. It waits as long as for the
// start of a pod, because some events end a failed start.
func (a *act) eventOf(ctx context.Context, kind, name, reason, text string) *corev1.Event {
	var found *corev1.Event
	what := fmt.Sprintf("event %s of %s %s with %q", reason, kind, name, text)
	eventually(ctx, podLimit, what, func(ctx context.Context) {
		events := &corev1.EventList{}
		check(a.api.List(ctx, events, client.MatchingFields{"involvedObject.kind": kind, "involvedObject.name": name}))
		var seen []string
		for i := range events.Items {
			e := &events.Items[i]
			if e.Reason == reason && strings.Contains(e.Message, text) {
				found = e
				return
			}
			seen = append(seen, e.Reason+": "+e.Message)
		}
		fail("there are %q", seen)
	})
	return found
}

// eventTime is the last time of an event, whichever API wrote it.
func eventTime(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}
