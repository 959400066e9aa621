// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
)

// Margin is the distance between the newest revision of the store that this node knows and the
// greatest token that the kernel obeys. A node that is cut off from the API server knows no newer
// revision: at 1 000 writes a second it obeys the claims of others for more than five days. A copy of the
// cluster that is restored beside it must give greater tokens: with --bump-revision 1000000000 it does.
const Margin = 500_000_000

// Ceiling is the greatest token that the kernel obeys.
type Ceiling struct {
	entry *ebpf.Map
	mu    sync.Mutex // guards the writes
	// known is the newest revision that Know has told the kernel.
	known atomic.Uint64
}

// Know tells the kernel a revision of this cluster's store. Claims with a token more than
// Margin above the newest one fence nothing. An older one changes nothing: the store may have gone back.
func (c *Ceiling) Know(revision uint64) error {
	if revision <= c.known.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known, err := c.Revision()
	if err != nil {
		return err
	}
	if revision > known {
		known = revision
		if err := c.entry.Put(uint32(0), ceilingOf(known)); err != nil {
			return fmt.Errorf("raise the ceiling of tokens to revision %d: %w", known, err)
		}
	}
	c.known.Store(known)
	return nil
}

// Revision returns the newest revision of the store that this node has known since its boot, 0 if none.
func (c *Ceiling) Revision() (uint64, error) {
	var ceiling uint64
	if err := c.entry.Lookup(uint32(0), &ceiling); err != nil {
		return 0, fmt.Errorf("read the ceiling of tokens: %w", err)
	}
	if ceiling == 0 {
		return 0, nil
	}
	return ceiling - Margin, nil
}

func ceilingOf(revision uint64) uint64 {
	if revision > math.MaxUint64-Margin {
		return math.MaxUint64
	}
	return revision + Margin
}
