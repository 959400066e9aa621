// SPDX-License-Identifier: Apache-2.0

package cidr

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/internal/loop"
)

// patience bounds the wait of an ADD for the service CIDRs.
const patience = 5 * time.Second

// Services are the known service CIDRs. Its methods are safe for concurrent use. Run runs once.
type Services struct {
	// client is nil if the service CIDRs are given.
	client client.WithWatch
	// namespace is that of the agent.
	namespace string
	memory    Memory
	log       logr.Logger
	changed   loop.Wake
	// answered is closed once the service CIDRs are known, or the API server has said why they are not.
	answered chan struct{}

	mu    sync.Mutex
	known []netip.Prefix
	// unknown is nil once the service CIDRs were read.
	unknown error
}

// GivenServices returns the service CIDRs that the user has named. They never change.
func GivenServices(prefixes []netip.Prefix) *Services {
	c := &Services{known: sorted(prefixes), changed: loop.NewWake(), answered: make(chan struct{})}
	close(c.answered)
	return c
}

// Memory keeps the service CIDRs over restarts. *attachment.Document implements it.
type Memory interface {
	Get() (last []netip.Prefix, known bool)
	Put([]netip.Prefix) error
}

// WatchedServices returns the service CIDRs of the ServiceCIDR objects. Until Run has read them, those of the
// last run count, or they are unknown: an agent may start while the API server is away.
func WatchedServices(c client.WithWatch, namespace string, memory Memory, log logr.Logger) *Services {
	s := &Services{client: c, namespace: namespace, memory: memory, log: log, changed: loop.NewWake(), answered: make(chan struct{})}
	if last, known := memory.Get(); known {
		s.known = last
		close(s.answered)
	} else {
		s.unknown = ErrNotRead
	}
	return s
}

// Prefixes returns the service CIDRs of both families in order, each once. An error says why they
// are unknown and what to do. Then keep what was made for those that were known before.
func (s *Services) Prefixes() ([]netip.Prefix, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.known), s.unknown
}

// Await returns the known service CIDRs. First it waits until the first search has ended, for at most
// patience or until ctx ends: without them, the checks of the first ADDs would pass wrongly.
func (s *Services) Await(ctx context.Context) []netip.Prefix {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-s.answered:
	case <-ctx.Done():
	}
	known, _ := s.Prefixes()
	return known
}

// Changed receives a value after each change of the result of Prefixes. Changes that come together
// are one value. It serves one receiver.
func (s *Services) Changed() <-chan struct{} { return s.changed }

// set replaces the result of Prefixes. unknown is never ErrNotRead.
func (s *Services) set(prefixes []netip.Prefix, unknown error) {
	prefixes = sorted(prefixes)
	s.mu.Lock()
	if errors.Is(s.unknown, ErrNotRead) {
		close(s.answered)
	}
	same := slices.Equal(s.known, prefixes) && errors.Is(s.unknown, unknown)
	s.known, s.unknown = prefixes, unknown
	s.mu.Unlock()
	if same {
		return
	}
	s.changed.Up()
	if unknown != nil {
		return
	}
	if err := s.memory.Put(prefixes); err != nil {
		s.log.Error(err, "the service CIDRs are not stored: an agent that starts while the API server is away does not know them")
	}
}

// sorted returns each prefix once, IPv4 first.
func sorted(prefixes []netip.Prefix) []netip.Prefix {
	all := slices.Clone(prefixes)
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// ParseService reads a service CIDR.
func ParseService(word string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(word)
	switch {
	case err != nil:
		return p, fmt.Errorf("service CIDR %q: it must be a prefix like 10.96.0.0/16 or fd00:10:96::/112", word)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("service CIDR %q: write the IPv4 prefix as 10.96.0.0/16", word)
	case p != p.Masked():
		return p, fmt.Errorf("service CIDR %q: it has bits after its length; write %s", word, p.Masked())
	case p.Bits() == 0:
		return p, fmt.Errorf("service CIDR %q: it must not contain all addresses", word)
	}
	for _, never := range neverServices() {
		if p.Overlaps(never) {
			return p, fmt.Errorf("service CIDR %q: it overlaps %s: loopback, multicast and link-local addresses are never those of Services", word, never)
		}
	}
	return p, nil
}

// neverServices are the loopback, multicast and link-local addresses (RFC 6890, RFC 5771, RFC 4291).
func neverServices() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range []string{"127.0.0.0/8", "224.0.0.0/4", "169.254.0.0/16", "::1/128", "ff00::/8", "fe80::/10"} {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}
