// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package hostlink

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/test/check"
)

// A router advertisement renews the lifetimes of addresses every few seconds, and each of them is an
// event. A restart of the network service makes many events at once.
func TestManyEventsMakeOneRepairAndThoseWithoutAChangeNone(t *testing.T) {
	r := newRig(t)
	watch := clocktesting.NewFakeClock(time.Now())
	r.links.Clock = watch
	w := &addressWatch{Links: r.links}
	w.look()
	r.wantWake(true)
	for _, changed := range []bool{false, true} {
		if changed {
			check.OK(r, r.node.AddAddr("mgmt0", netip.MustParsePrefix("172.30.0.99/24")))
		}
		changes := make(chan netlink.AddrUpdate)
		ended := make(chan struct{})
		go func() { w.follow(t.Context(), changes); close(ended) }()
		for range 200 {
			changes <- netlink.AddrUpdate{}
		}
		r.wantWake(false)
		watch.Step(quiet)
		for !watch.HasWaiters() { // the first of the next ones: those before are handled
			changes <- netlink.AddrUpdate{}
		}
		close(changes)
		<-ended
		r.wantWake(changed)
		r.wantWake(false)
	}
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
	done := make(chan error, 1)
	go func() { done <- r.links.Run(ctx) }()
	r.Cleanup(func() {
		stop()
		check.OK(r, <-done)
	})
}
