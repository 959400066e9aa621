// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"math"
)

// CeilingMargin is the distance between the newest revision of the store that this node knows and the
// greatest token that the kernel obeys. A node that is cut off from the API server knows no newer
// revision: at 1 000 writes a second it obeys the claims of others for more than five days. A copy of the
// cluster that is restored beside it must give greater tokens: with --bump-revision 1000000000 it does.
const CeilingMargin = 500_000_000

// KnowRevision tells the kernel a revision of this cluster's store. Claims with a token more than
// CeilingMargin above the newest known revision fence nothing. An older revision changes nothing: the
// store may have gone back.
func (t *tables) KnowRevision(revision uint64) error {
	if revision <= t.known.Load() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known, err := t.revision()
	if err != nil {
		return err
	}
	if revision > known {
		known = revision
		if err := t.maps.Ceiling.Put(uint32(0), ceilingOf(known)); err != nil {
			return fmt.Errorf("raise the ceiling of tokens to revision %d: %w", known, err)
		}
	}
	t.known.Store(known)
	return nil
}

// Revision returns the newest revision of the store that this node has known since its boot, 0 if none.
func (t *tables) Revision() (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.revision()
}

func (t *tables) revision() (uint64, error) {
	var ceiling uint64
	if err := t.maps.Ceiling.Lookup(uint32(0), &ceiling); err != nil {
		return 0, fmt.Errorf("read the ceiling of tokens: %w", err)
	}
	if ceiling == 0 {
		return 0, nil
	}
	return ceiling - CeilingMargin, nil
}

func ceilingOf(revision uint64) uint64 {
	if revision > math.MaxUint64-CeilingMargin {
		return math.MaxUint64
	}
	return revision + CeilingMargin
}
