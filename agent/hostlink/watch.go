// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/fenceline/fenceline/internal/backoff"
	"github.com/fenceline/fenceline/internal/rest"
)

// quiet is how long watch waits after an event for more of them. Each router advertisement and each
// restart of a network service makes several.
const quiet = 100 * time.Millisecond

// watch makes Run repair all after changes of the node's addresses, until ctx ends.
func (l *Links) watch(ctx context.Context) {
	tries := backoff.Backoff{First: retryFirst, Most: retryMost}
	var seen []netip.Addr
	for ctx.Err() == nil {
		changes := make(chan netlink.AddrUpdate)
		// The library keeps the socket until this context ends, also after it has closed the channel.
		listening, end := context.WithCancel(ctx)
		err := l.subscribe(listening, changes)
		if err == nil {
			tries.Reset()
			// Nothing has told of the changes before the subscription.
			seen = l.wakeIfChanged(seen)
			seen = l.follow(ctx, changes, seen)
		} else if tries.IsNew(err) {
			l.Log.Error(err, "changes of the node's addresses are seen once a minute only")
		}
		end()
		rest.For(ctx, l.Clock, tries.Next(), nil)
	}
}

// follow handles events until the subscription ends. It returns the addresses that it saw last.
func (l *Links) follow(ctx context.Context, changes <-chan netlink.AddrUpdate, seen []netip.Addr) []netip.Addr {
	var calm <-chan time.Time // after the first event of some
	for {
		select {
		case _, open := <-changes:
			if !open {
				return seen
			}
			if calm == nil {
				calm = l.Clock.After(quiet)
			}
		case <-calm:
			calm, seen = nil, l.wakeIfChanged(seen)
		case <-ctx.Done():
			for range changes { // the subscription ends as well, and must not wait for a reader
			}
			return seen
		}
	}
}

// wakeIfChanged makes Run repair all unless the node has the addresses that were seen. Most events tell of
// lifetimes.
func (l *Links) wakeIfChanged(seen []netip.Addr) []netip.Addr {
	now, err := l.nodeAddresses()
	if err != nil || !slices.Equal(seen, now) {
		l.WakeAll()
	}
	return now
}

// subscribe reports changes of the node's addresses until ctx ends. It closes the channel at the end.
func (l *Links) subscribe(ctx context.Context, changes chan netlink.AddrUpdate) error {
	node := netns.NsHandle(l.nodeNS.Fd())
	err := netlink.AddrSubscribeWithOptions(changes, ctx.Done(), netlink.AddrSubscribeOptions{
		Namespace: &node,
		ErrorCallback: func(err error) {
			if ctx.Err() == nil {
				l.Log.Info("the watch of the node's addresses ended, and begins again", "why", err.Error())
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch the addresses of the node: %w", err)
	}
	return nil
}
