// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/loop"
	"github.com/fenceline/fenceline/internal/wholelist"
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
	tries := loop.Backoff{First: retryFirst, Most: retryMost}
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
		loop.For(ctx, w.Clock, tries.Next(), nil)
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

// look makes Run repair all if the node's addresses differ. Most events only report lifetimes.
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

// servicesLink is the interface on which kube-proxy in mode IPVS puts the addresses of all Services.
const servicesLink = "kube-ipvs0"

// nodeAddresses returns the addresses by which hosts reach the node.
func (l *Links) nodeAddresses() ([]netip.Addr, error) {
	links, err := wholelist.Of(l.node.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list the interfaces of the node: %w", err)
	}
	names := map[int]string{}
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
	}
	addrs, err := wholelist.Of(func() ([]netlink.Addr, error) { return l.node.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the addresses of the node: %w", err)
	}
	var found []netip.Addr
	for _, a := range addrs {
		if addr := addrOf(a.IP); isOfNode(addr, a.Scope, names[a.LinkIndex]) {
			found = append(found, addr)
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return slices.Compact(found), nil
}

// isOfNode reports whether other hosts may reach the node by an address of one of its links.
func isOfNode(addr netip.Addr, scope int, link string) bool {
	return addr.IsValid() && !addr.IsLoopback() && !(addr.Is6() && addr.IsLinkLocalUnicast()) &&
		scope != unix.RT_SCOPE_HOST && link != servicesLink && !strings.HasPrefix(link, NodePrefix)
}
