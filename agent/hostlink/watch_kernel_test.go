// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package hostlink

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/agent/parent"
	"github.com/fenceline/fenceline/test/check"
)

// A router advertisement renews the lifetimes of addresses every few seconds, and each of them is an
// event. A restart of the network service makes many events at once.
func TestManyEventsMakeOneRepairAndThoseWithoutAChangeNone(t *testing.T) {
	r := newRig(t)
	r.links.look()
	r.wantWake(true)
	r.links.look()
	r.wantWake(false)
	check.OK(r, r.node.AddAddr("mgmt0", netip.MustParsePrefix("172.30.0.99/24")))
	now := clocktesting.NewFakeClock(time.Now())
	r.links.Clock = now
	for range 200 {
		r.links.AddressesChanged()
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.links.followAddresses(ctx) })
	r.wantWakeSoon()
	// The events before the first look are over once they were gathered, with one more look.
	check.Becomes(t, time.Minute, "the loop gathers", now.HasWaiters)
	now.Step(quiet)
	check.Becomes(t, time.Minute, "the loop rests", func() bool { return len(r.links.changed) == 0 && now.HasWaiters() })
	stop()
	running.Wait()
	r.wantWake(false)
}

// wantWakeSoon waits until a repair is due.
func (r *rig) wantWakeSoon() {
	r.Helper()
	check.Receive(r, time.Minute, "a repair", (<-chan struct{})(r.links.wake))
}

// wantWake fails the test unless a repair is due, or is not.
func (r *rig) wantWake(want bool) {
	r.Helper()
	woken := false
	select {
	case <-r.links.wake:
		woken = true
	default:
	}
	check.Equal(r, woken, want, "a repair is due:")
}

// run runs the links until the end of the test.
func (r *rig) run() {
	ctx, stop := context.WithCancel(context.Background())
	changes := &parent.Changes{
		Link: func(bool) {}, Address: r.links.AddressesChanged, Pod: func(int) {}, Missed: r.links.AddressesChanged,
		Log: logr.Discard(), Clock: clock.RealClock{},
	}
	var running sync.WaitGroup
	running.Go(func() { check.OK(r, r.links.Run(ctx)) })
	running.Go(func() { check.OK(r, r.node.Do(func() error { return changes.Run(ctx) })) })
	r.Cleanup(func() { stop(); running.Wait() })
}
