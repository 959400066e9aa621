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
	"github.com/fenceline/fenceline/internal/idle"
)

// quiet is how long watch waits after an event for more of them. Each router advertisement and each
// restart of a network service makes several.
const quiet = 100 * time.Millisecond

// addressWatch makes Run repair everything after changes of the node's addresses. seen are the
// addresses at the last look.
type addressWatch struct {
	*Links
	seen []netip.Addr
}

func (w *addressWatch) run(ctx context.Context) {
	tries := backoff.Backoff{First: retryFirst, Most: retryMost}
	for ctx.Err() == nil {
		changes := make(chan netlink.AddrUpdate)
		// The library keeps the socket until this context ends, also after it has closed the channel.
		listening, end := context.WithCancel(ctx)
		err := w.subscribe(listening, changes)
		if err == nil {
			tries.Reset()
			// No event reports a change from before the subscription.
			w.look()
			w.follow(ctx, changes)
		} else if tries.IsNew(err) {
			w.Log.Error(err, "changes of the node's addresses are seen once a minute only")
		}
		end()
		idle.For(ctx, w.Clock, tries.Next(), nil)
	}
}

// follow handles events until the subscription ends.
func (w *addressWatch) follow(ctx context.Context, changes <-chan netlink.AddrUpdate) {
	var calm <-chan time.Time // set by the first event of several
	for {
		select {
		case _, open := <-changes:
			if !open {
				return
			}
			if calm == nil {
				calm = w.Clock.After(quiet)
			}
		case <-calm:
			calm = nil
			w.look()
		case <-ctx.Done():
			for range changes { // the subscription ends as well, and must not wait for a reader
			}
			return
		}
	}
}

// look makes Run repair everything if the node's addresses have changed. Most events only report
// lifetimes.
func (w *addressWatch) look() {
	now, err := w.nodeAddresses()
	if err != nil || !slices.Equal(w.seen, now) {
		w.WakeAll()
	}
	w.seen = now
}

// subscribe reports changes of the node's addresses until ctx ends. It closes the channel at the end.
func (w *addressWatch) subscribe(ctx context.Context, changes chan netlink.AddrUpdate) error {
	node := netns.NsHandle(w.nodeNS.Fd())
	err := netlink.AddrSubscribeWithOptions(changes, ctx.Done(), netlink.AddrSubscribeOptions{
		Namespace: &node,
		ErrorCallback: func(err error) {
			if ctx.Err() == nil {
				w.Log.Info("the watch of the node's addresses ended, and begins again", "why", err.Error())
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch the addresses of the node: %w", err)
	}
	return nil
}
