// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fenceline/fenceline/test/check"
)

// gauge has the reasons of the faults that are present.
type gauge map[string]bool

func (g gauge) set(reason string, present bool) {
	delete(g, reason)
	if present {
		g[reason] = true
	}
}

func watchOf(store client.Client, hasKey *bool, c clock.WithTicker) (*Watch, gauge, *events.FakeRecorder) {
	g, recorder := gauge{}, events.NewFakeRecorder(10)
	return NewWatch(WatchOptions{
		Cache: store, Namespace: "system", Node: "n1", HasKey: func() bool { return *hasKey },
		SetFault: g.set, Events: recorder, Log: logr.Discard(), Clock: c,
	}), g, recorder
}

func TestAFaultOfTheSecretIsReportedOnce(t *testing.T) {
	store, hasKey := fake.NewClientBuilder().Build(), false
	w, faults, recorder := watchOf(store, &hasKey, clock.RealClock{})
	secret := func(current string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: Secret}, Data: map[string][]byte{"current": []byte(current)}}
	}
	for _, step := range []struct {
		does  string
		do    func() error
		fault string
		event string
	}{
		{"nothing is there", func() error { return nil }, reasonMissing, "is missing, which the controller makes: is it running?; this node claims no address"},
		{"again", func() error { return nil }, reasonMissing, ""},
		{"a short key", func() error { return store.Create(t.Context(), secret("short")) }, reasonMalformed, "key current has 5 bytes, not 16"},
		{"a key", func() error { hasKey = true; return store.Update(t.Context(), secret("0123456789abcdef")) }, "", ""},
		{"a short key again", func() error { return store.Update(t.Context(), secret("short")) }, reasonMalformed, "the key from before stays in force"},
		{"deleted", func() error { return store.Delete(t.Context(), secret("")) }, reasonMissing, "the key from before stays in force"},
	} {
		check.OK(t, step.do())
		w.look(t.Context())
		if len(faults) > 1 || (step.fault == "") != (len(faults) == 0) || step.fault != "" && !faults[step.fault] {
			t.Errorf("%s: faults %v, want %q", step.does, faults, step.fault)
		}
		got := ""
		select {
		case got = <-recorder.Events:
		default:
		}
		check.That(t, (got == "") == (step.event == "") && strings.Contains(got, step.event), "%s: event %q, want %q", step.does, got, step.event)
	}
}

func TestTheFirstKeyIsWaitedForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hasKey := false
		w, _, recorder := watchOf(fake.NewClientBuilder().Build(), &hasKey, clock.RealClock{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(patience - time.Nanosecond)
		synctest.Wait()
		check.That(t, !w.Settled() && len(recorder.Events) == 0, "the wait has ended early, with %d events", len(recorder.Events))
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		check.That(t, w.Settled() && len(recorder.Events) == 1, "the agent still waits, with %d events", len(recorder.Events))
		stop()
		check.OK(t, <-ended)

		hasOther := true
		other, _, _ := watchOf(fake.NewClientBuilder().Build(), &hasOther, clock.RealClock{})
		check.That(t, other.Settled(), "an agent with a key waits")
	})
}
