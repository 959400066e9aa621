// SPDX-License-Identifier: Apache-2.0

package win

import (
	"context"
	"iter"

	"github.com/fenceline/fenceline/agent/holder/kept"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/internal/owner"
)

// standsBehind reports whether the pod is the target of a live migration and its source still has the address.
func standsBehind(s *search) bool {
	return s.kept != nil && lease.StandsBehind(&s.Who, owner.IsTarget(s.Pod), s.h.Node, &s.kept.Spec)
}

// behind yields the address that the source of a live migration still uses.
func behind(_ context.Context, s *search) iter.Seq2[candidate, error] {
	token, err := lease.Token(s.kept)
	c := candidate{pool: kept.PoolOf(s.family, s.kept)}
	c.address = addressOf(c.pool, s.kept.Spec.Addr())
	c.address.Static, c.address.Behind = s.Keeps(c.pool), token
	return one(c, err)
}
