// SPDX-License-Identifier: Apache-2.0

package vf

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/internal/loop"
)

// again is the pause before a new subscription. One ends if changes come faster than reads.
const again = time.Second

// Follow calls changed when it begins to listen, and when a physical device appears or changes in
// the calling thread's network namespace: a VF may be back from a pod. It ends with ctx.
func Follow(ctx context.Context, changed func(), log logr.Logger, now clock.Clock) error {
	for ctx.Err() == nil {
		if err := follow(ctx, changed); err != nil {
			log.Error(err, "VFs that come back from pods are seen by the next sweep only")
			return nil
		}
		loop.For(ctx, now, again, nil)
	}
	return nil
}

// follow is Follow until the kernel has lost changes.
func follow(ctx context.Context, changed func()) error {
	// The library keeps the socket until this context ends, also after it has closed the channel.
	ctx, end := context.WithCancel(ctx)
	defer end()
	updates := make(chan netlink.LinkUpdate, 64)
	if err := netlink.LinkSubscribe(updates, ctx.Done()); err != nil {
		return fmt.Errorf("subscribe to the changes of devices: %w", err)
	}
	changed() // no event reports changes from before the subscription
	for u := range updates {
		if u.Link.Type() == "device" {
			changed()
		}
	}
	return nil
}
