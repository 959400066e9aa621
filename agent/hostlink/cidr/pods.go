// SPDX-License-Identifier: Apache-2.0

package cidr

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/fenceline/fenceline/internal/loop"
)

// ErrNotRead: no source has answered since somebody needs the pod CIDRs.
var ErrPodsNotRead = errors.New("the pod CIDRs are not read yet")

// Pods are the known pod CIDRs. Its methods are safe for concurrent use. Run runs once.
type Pods struct {
	PodOptions
	wake, changed loop.Wake
	// failures has the failures that do not end by themselves. Only Pass uses it.
	failures loop.Backoff

	mu      sync.Mutex
	known   []netip.Prefix
	unknown error
}

// NewPods returns the pod CIDRs. They are unknown until Run has read them.
func NewPods(o PodOptions) *Pods {
	return &Pods{
		PodOptions: o, unknown: ErrPodsNotRead, wake: loop.NewWake(), changed: loop.NewWake(),
		failures: loop.Backoff{First: retry, Most: longest},
	}
}

// GivenPods returns the pod CIDRs that the user has named. They never change.
func GivenPods(prefixes []netip.Prefix) *Pods {
	return &Pods{known: merge(prefixes), wake: loop.NewWake(), changed: loop.NewWake()}
}

// Prefixes returns the pod CIDRs of both families in order. An error says that some are unknown: then keep
// what was made for those that were known before. The first call has Run read them.
func (p *Pods) Prefixes() ([]netip.Prefix, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(p.unknown, ErrPodsNotRead) {
		p.wake.Up()
	}
	return slices.Clone(p.known), p.unknown
}

// Changed receives a value after each change of the result of Prefixes. It serves one receiver.
func (p *Pods) Changed() <-chan struct{} { return p.changed }

func (p *Pods) set(known []netip.Prefix, unknown error) {
	known = merge(known)
	p.mu.Lock()
	same := slices.Equal(p.known, known) && (p.unknown == nil) == (unknown == nil)
	p.known, p.unknown = known, unknown
	p.mu.Unlock()
	if !same {
		p.changed.Up()
	}
}

// ParsePod reads a pod CIDR. It refuses all addresses, which would take the default
// routes back.
func ParsePod(word string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(word)
	addr := p.Addr()
	switch {
	case err != nil, addr.Is4In6():
		return p, fmt.Errorf("pod CIDR %q: it must be a prefix like 10.244.0.0/16 or fd00:10:244::/56", word)
	case p != p.Masked():
		return p, fmt.Errorf("pod CIDR %q: it has bits after its length; write %s", word, p.Masked())
	case p.Bits() == 0, addr.IsLoopback(), addr.IsMulticast(), addr.IsLinkLocalUnicast():
		return p, fmt.Errorf("pod CIDR %q: no pod network has these addresses; remove it", word)
	}
	return p, nil
}

// merge returns the fewest prefixes with the same addresses, in order: many nodes need few routes.
func merge(prefixes []netip.Prefix) []netip.Prefix {
	all := slices.Clone(prefixes)
	for {
		slices.SortFunc(all, netip.Prefix.Compare)
		var next []netip.Prefix
		for _, p := range all {
			if n := len(next); n > 0 {
				last := next[n-1]
				if last.Contains(p.Addr()) { // prefixes never overlap in part, and the shorter comes first
					continue
				}
				if last.Bits() == p.Bits() && p.Bits() > 1 && last.Addr().Is4() == p.Addr().Is4() {
					if wider := netip.PrefixFrom(last.Addr(), last.Bits()-1); wider == wider.Masked() && wider.Contains(p.Addr()) {
						next[n-1] = wider
						continue
					}
				}
			}
			next = append(next, p)
		}
		if len(next) == len(all) {
			return next
		}
		all = next
	}
}
