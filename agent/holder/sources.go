// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
)

// sources are all sources in the order in which an ADD asks them. A source that does not concern the
// interface yields nothing.
func sources() []source {
	return []source{
		{name: "behind", find: behind, proof: byTurn, refuses: true},
		{name: "kept", find: keptFor, proof: byLastHolder, refuses: true},
		{name: "offered", find: offered, obeys: limits, proof: byProbe, alone: true, learns: true, refuses: true},
		{name: "requested Warm", find: requestedWarm, obeys: limits, proof: byWatch, refuses: true},
		{name: "requested", find: requested, obeys: limits, proof: byProbe, refuses: true},
		{name: "Warm", find: ready, obeys: turns, proof: byWatch, learns: true, refuses: true},
		{name: "free", find: free, obeys: turns, proof: byProbe, skipsSighted: true, learns: true, refuses: true},
		// The speakers of sighted addresses may be gone by now: the probe decides.
		{name: "sighted", find: free, obeys: turns, proof: byProbe, learns: true, refuses: true},
		// The pods of this node come before its stock.
		{name: "unready Warm", find: anyWarm, obeys: turns, proof: byWatch, learns: true, refuses: true},
	}
}

// obey reduces the pools of the family to those that the rules leave. If there is none, the error is a
// *ipam.NoPoolError.
func (s *search) obey(ctx context.Context, r rules) (err error) {
	if s.obeyed < limits && r >= limits {
		if s.family, err = s.family.Open(); err != nil {
			return err
		}
		if s.family, err = s.withinLimits(ctx); err != nil {
			return err
		}
		s.full = s.family.Pools
	}
	if s.obeyed < turns && r >= turns {
		if s.family, err = s.inTurn(s.family); err != nil {
			return err
		}
	}
	s.obeyed = max(s.obeyed, r)
	return nil
}

// next is what an ADD does after a try.
type next int

const (
	answerWith next = iota
	nextCandidate
	nextSource
	giveUp
)

// after decides what follows a try of a source's candidate. Its table test is the specification.
func after(o outcome, s source) next {
	switch {
	case o.result == won:
		return answerWith
	case o.result == notAddress:
		return nextCandidate
	case o.result == usedUp && !s.alone, o.result == notPool && !s.refuses:
		return nextSource
	}
	return giveUp
}
