// SPDX-License-Identifier: Apache-2.0

package event

import (
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestEventsBeyondTheRateAreLoggedInstead(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))
	written := events.NewFakeRecorder(2 * burst)
	var logged []string
	log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	recorder := NewPaced(written, clock, log)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0"}}
	for _, step := range []struct {
		name                     string
		pause                    time.Duration
		events, written, dropped int
	}{
		{"a burst is written", 0, burst, burst, 0},
		{"an event after the burst is logged", 0, 1, 0, 1},
		{"a second later some more events are written", time.Second, perSecond + 2, perSecond, 2},
	} {
		t.Run(step.name, func(t *testing.T) {
			clock.Step(step.pause)
			logged = nil
			for range step.events {
				recorder.Eventf(pod, nil, corev1.EventTypeWarning, "AddressReclaimed", "Quarantine", "address %s was taken", "10.6.0.10")
			}
			got := len(written.Events)
			check.That(t, got == step.written, "%d events are written, want %d", got, step.written)
			check.Must(t, len(logged) == step.dropped, "%d events are logged, want %d", len(logged), step.dropped)
			for _, line := range logged {
				check.Says(t, line, "default/web-0", "AddressReclaimed", "address 10.6.0.10 was taken")
			}
			for range step.written {
				got, want := <-written.Events, "Warning AddressReclaimed address 10.6.0.10 was taken"
				check.That(t, got == want, "event %q, want %q", got, want)
			}
		})
	}
}
