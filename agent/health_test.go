// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/fenceline/fenceline/test/check"
)

func TestALivenessProbeIsAnsweredUntilStopFreesItsPort(t *testing.T) {
	// Not 127.0.0.1: other processes connect from its ports.
	free := check.Value(net.Listen("tcp", "127.0.0.2:0"))(t)
	address := free.Addr().String()
	free.Close()
	for range 2 {
		stop := check.Value(AnswerAlive(address, testr.New(t)))(t)
		for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusNotFound} {
			answer, err := http.Get(fmt.Sprintf("http://%s%s", address, path))
			check.OK(t, err)
			answer.Body.Close()
			check.That(t, answer.StatusCode == want, "%s answers %s", path, answer.Status)
		}
		stop()
	}
}

func TestAnAgentIsReadyOnceADDCanBeServed(t *testing.T) {
	noPlugin, full := errors.New("no directory"), errors.New("no space left")
	for _, row := range []struct {
		name        string
		synced, key bool
		state       error
		plugin      error
		ready       bool
	}{
		{"everything is there", true, true, nil, nil, true},
		{"the caches are not synced", false, true, nil, nil, false},
		{"there is no claim key", true, false, nil, nil, false},
		{"the plugin cannot be installed", true, true, nil, noPlugin, false},
		{"the state cannot be written", true, true, full, nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := Ready{
				CachesSynced:  func(context.Context) bool { return row.synced },
				KeySettled:    func() bool { return row.key },
				State:         func() error { return row.state },
				InstallPlugin: func() error { return row.plugin },
			}
			err := r.Check(t.Context())
			if (err == nil) != row.ready || row.plugin != nil && !errors.Is(err, row.plugin) || row.state != nil && !errors.Is(err, row.state) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A node whose agent starts while the API server is away stays Ready, until its caches are synced or its
// state cannot be written.
func TestAnAgentServesThePodsThatItKnowsWhileTheAPIServerIsAway(t *testing.T) {
	full := errors.New("no space left")
	var state error
	away, synced := false, false
	r := Ready{
		CachesSynced: func(context.Context) bool { return synced },
		KeySettled:   func() bool { return false },
		State:        func() error { return state }, InstallPlugin: func() error { return nil },
		Outage: func() (time.Time, bool) { return time.Time{}, away },
	}
	check.That(t, r.Serves(t.Context()) != nil, "it serves, although the API server has only not answered yet")
	away = true
	check.OK(t, r.Serves(t.Context()))
	check.That(t, r.Check(t.Context()) != nil, "an ADD of any pod can be served")
	away = false // it has just come back
	check.OK(t, r.Serves(t.Context()))
	state = full
	check.Is(t, r.Serves(t.Context()), full, "got")
	state, synced = nil, true
	check.That(t, r.Serves(t.Context()) != nil, "it serves without a claim key")
}

// The first ADD may start another watch.
func TestCachesThatWereSyncedOnceStaySynced(t *testing.T) {
	synced := true
	r := Ready{
		CachesSynced: func(context.Context) bool { return synced },
		KeySettled:   func() bool { return true },
		State:        func() error { return nil }, InstallPlugin: func() error { return nil },
	}
	for range 2 {
		check.OK(t, r.Check(t.Context()))
		synced = false
	}
}
