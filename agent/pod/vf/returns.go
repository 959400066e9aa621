// SPDX-License-Identifier: Apache-2.0

package vf

import (
	"context"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
)

// Follow calls changed when a physical device appears in the calling thread's network namespace, or changes
// there, until ctx ends: a VF may be back from a pod.
func Follow(ctx context.Context, changed func(), log logr.Logger) error {
	for ctx.Err() == nil {
		updates := make(chan netlink.LinkUpdate, 64)
		if err := netlink.LinkSubscribe(updates, ctx.Done()); err != nil {
			log.Error(err, "VFs that come back from pods are seen by the next sweep only")
			return nil
		}
		for u := range updates { // it ends too if the kernel has lost some
			if u.Link.Type() == "device" {
				changed()
			}
		}
	}
	return nil
}
