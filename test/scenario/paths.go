// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// pathLimit is how long a path may take to work: kube-proxy and CoreDNS have to learn of endpoints
	// first, and CoreDNS keeps an early answer for its TTL.
	pathLimit = time.Minute
	// pathsAtOnce bounds the load of all paths on the machine.
	pathsAtOnce = 16
)

// path is one way through the cluster.
type path struct {
	name string
	walk func(context.Context) error
}

// paths is a list of ways, for both families.
type paths []path

// get adds a way by HTTP. pod answers; client is the address that it sees, unless that is invalid.
func (p *paths) get(from place, what string, to netip.AddrPort, pod string, client netip.Addr) {
	p.ask(from, "HTTP", what, to, pod, client, place.get)
}

// send adds a way by UDP.
func (p *paths) send(from place, what string, to netip.AddrPort, pod string, client netip.Addr) {
	p.ask(from, "UDP", what, to, pod, client, place.send)
}

func (p *paths) ask(from place, protocol, what string, to netip.AddrPort, pod string, client netip.Addr, by func(place, context.Context, netip.AddrPort) (reply, error)) {
	p.add(fmt.Sprintf("%s to %s (%s %s)", from.name, what, protocol, to), func(ctx context.Context) error {
		got, err := by(from, ctx, to)
		if err != nil {
			return err
		}
		if got.pod != pod {
			return fmt.Errorf("%s answered, not %s", got.pod, pod)
		}
		if client.IsValid() && got.client != client {
			return fmt.Errorf("%s saw the client %s, not %s", got.pod, got.client, client)
		}
		return nil
	})
}

// ping adds a way of an echo request and its answer.
func (p *paths) ping(from place, what string, to netip.Addr) {
	p.add(fmt.Sprintf("%s to %s (ping %s)", from.name, what, to), func(ctx context.Context) error { return from.ping(ctx, to) })
}

// resolve adds a question to a name server.
func (p *paths) resolve(from place, server netip.Addr, name string, want []netip.Addr) {
	p.add(fmt.Sprintf("%s to the addresses of %s (DNS %s)", from.name, name, server), func(ctx context.Context) error {
		got, err := from.resolve(ctx, server, name)
		if err != nil {
			return err
		}
		slices.SortFunc(got, netip.Addr.Compare)
		want := slices.SortedFunc(slices.Values(want), netip.Addr.Compare)
		if !slices.Equal(got, want) {
			return fmt.Errorf("they are %v, not %v", got, want)
		}
		return nil
	})
}

func (p *paths) add(name string, walk func(context.Context) error) { *p = append(*p, path{name, walk}) }

// walk takes all ways at the same time, each until it works once. The error names all that did not.
func (p paths) walk(ctx context.Context) error {
	errs := make([]error, len(p))
	var group errgroup.Group
	group.SetLimit(pathsAtOnce)
	for i, way := range p {
		group.Go(func() error {
			errs[i] = attempt(func() { eventually(ctx, pathLimit, way.name, func(ctx context.Context) { check(way.walk(ctx)) }) })
			return nil
		})
	}
	_ = group.Wait() // its functions return no errors
	if err := errors.Join(errs...); err != nil {
		failed := len(slices.DeleteFunc(errs, func(err error) bool { return err == nil }))
		return fmt.Errorf("%d of %d ways do not work: %w", failed, len(p), err)
	}
	return nil
}
