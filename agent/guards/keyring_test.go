// SPDX-License-Identifier: Apache-2.0

package guards

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

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/test/check"
)

func TestTheClaimKeysOfASecret(t *testing.T) {
	one, two := "0123456789abcdef", "fedcba9876543210"
	for _, test := range []struct {
		name     string
		data     map[string][]byte
		previous string
		fails    bool
	}{
		{"one key", map[string][]byte{"current": []byte(one)}, "", false},
		{"a rotation", map[string][]byte{"current": []byte(one), "previous": []byte(two)}, two, false},
		{"no key", nil, "", true},
		{"a short key", map[string][]byte{"current": []byte("short")}, "", true},
		{"a short previous key", map[string][]byte{"current": []byte(one), "previous": []byte("short")}, "", true},
	} {
		current, previous, err := keysOf(&corev1.Secret{Data: test.data})
		check.Equal(t, err != nil, test.fails, "%s: %v: refused:", test.name, err)
		right := current == bpf.ClaimKey([]byte(one)) && (previous != nil) == (test.previous != "")
		check.That(t, test.fails || right, "%s: %x, %v", test.name, current, previous)
	}
}

// A Secret is written as its current key, then its previous key if it has one.
func TestTheKeysInForceAsTheSecretChanges(t *testing.T) {
	for _, test := range []struct {
		name    string
		secrets []string
		want    string
	}{
		{"the first", []string{"a"}, "a"},
		{"the first, in a rotation", []string{"ba"}, "ba"},
		{"a rotation", []string{"a", "ba"}, "ba"},
		{"a rotation that has ended", []string{"a", "ba", "b"}, "b"},
		{"lost and made again", []string{"a", "b"}, "ba"},
		{"lost and made again, then read again", []string{"a", "b", "b", "b"}, "ba"},
		{"lost in a rotation", []string{"ba", "c"}, "cb"},
		{"lost twice", []string{"a", "b", "c"}, "cb"},
		{"lost, then rotated", []string{"a", "b", "cb"}, "cb"},
		{"lost, then a rotation has ended", []string{"a", "b", "cb", "c"}, "c"},
		{"stolen, and both replaced", []string{"a", "bc"}, "bc"},
		{"stolen, both replaced, and the rotation ended", []string{"a", "bc", "b"}, "b"},
		{"read again", []string{"a", "a"}, "a"},
	} {
		var inForce ring
		for _, secret := range test.secrets {
			var previous *bpf.ClaimKey
			if len(secret) > 1 {
				previous = &bpf.ClaimKey{secret[1]}
			}
			inForce = inForce.next(bpf.ClaimKey{secret[0]}, previous)
		}
		var want []claim.Key
		for _, key := range []byte(test.want) {
			want = append(want, claim.Key{key})
		}
		check.List(t, inForce.keys(), want, "%s:", test.name)
	}
}

// gauge has the reasons of the faults that are present.
type gauge map[string]bool

func (g gauge) set(reason string, present bool) {
	delete(g, reason)
	if present {
		g[reason] = true
	}
}

func watchOf(store client.Client, hasKey *bool, c clock.WithTicker) (*KeyWatch, gauge, *events.FakeRecorder) {
	g, recorder := gauge{}, events.NewFakeRecorder(10)
	return NewKeyWatch(KeyWatchOptions{
		Reporter: event.Reporter{Node: "n1", Events: recorder, Log: logr.Discard(), Clock: c},
		Cache:    store, Namespace: "system", HasKey: func() bool { return *hasKey }, SetFault: g.set,
	}), g, recorder
}

func TestAFaultOfTheSecretIsReportedOnce(t *testing.T) {
	store, hasKey := fake.NewClientBuilder().Build(), false
	w, faults, recorder := watchOf(store, &hasKey, clock.RealClock{})
	secret := func(current string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: KeySecret}, Data: map[string][]byte{"current": []byte(current)}}
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
