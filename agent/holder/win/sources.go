// SPDX-License-Identifier: Apache-2.0

package win

import "context"

// Sources returns all sources in the order in which an ADD asks them. Each obeys the rules of those
// before it.
func Sources() []Source {
	return []Source{
		{Name: "behind", concerns: standsBehind, find: behind, proof: byTurn},
		{Name: "kept", concerns: hasKept, find: keptFor, proof: byLastHolder},
		{Name: "offered", concerns: hasOffer, find: offered, obeys: limits, proof: byProbe, alone: true, learns: true},
		{Name: "requested Warm", concerns: isRequested, find: requestedWarm, obeys: limits, proof: byWatch},
		{Name: "requested", concerns: isRequested, find: free, obeys: limits, proof: byProbe},
		{Name: "Warm", find: ready, obeys: turns, proof: byWatch, learns: true},
		{Name: "free", find: free, obeys: turns, proof: byProbe, skipsSighted: true, learns: true},
		// The speakers of sighted addresses may be gone by now: the probe decides.
		{Name: "sighted", find: free, obeys: turns, proof: byProbe, learns: true},
		// The pods of this node matter more than its stock.
		{Name: "unready Warm", find: anyWarm, obeys: turns, proof: byWatch, learns: true},
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
		s.Full = s.family.Pools
	}
	if s.obeyed < turns && r >= turns {
		if s.family, err = s.inTurn(s.family); err != nil {
			return err
		}
	}
	s.obeyed = max(s.obeyed, r)
	return nil
}

// next is the step of an ADD after a try.
type next int

const (
	answerWith next = iota
	nextCandidate
	nextSource
	giveUp
)

// after decides what follows a try of a source's candidate. Its table test is the specification.
func after(o outcome, s Source) next {
	switch {
	case o.result == won:
		return answerWith
	case o.result == notAddress:
		return nextCandidate
	case o.result == usedUp && !s.alone:
		return nextSource
	}
	return giveUp
}
