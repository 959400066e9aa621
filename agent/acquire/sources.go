// SPDX-License-Identifier: Apache-2.0

package acquire

import "context"

// Sources returns all sources in the order in which an ADD asks them. The rules only grow along the
// list. With a requested address, each source yields only that one.
func Sources() []Source {
	return []Source{
		{Name: "behind", concerns: standsBehind, find: behind, proof: byHandOver},
		{Name: "kept", concerns: hasKept, find: keptFor, proof: byLastHolder},
		{Name: "offered", concerns: hasOffer, find: offered, obeys: limits, proof: byProbe, final: true, learns: true},
		{Name: "requested Warm", concerns: isRequested, find: requestedWarm, obeys: limits, proof: byWatch},
		{Name: "requested", concerns: isRequested, find: free, obeys: limits, proof: byProbe},
		{Name: "Warm", find: ready, obeys: queue, proof: byWatch, learns: true},
		{Name: "free", find: free, obeys: queue, proof: byProbe, skipsSighted: true, learns: true},
		// The speakers of sighted addresses may be gone by now: the probe decides.
		{Name: "sighted", find: free, obeys: queue, proof: byProbe, learns: true},
		// The pods of this node matter more than its stock.
		{Name: "unready Warm", find: anyWarm, obeys: queue, proof: byWatch, learns: true},
	}
}

// obey removes the pools that the rules exclude. If none is left, it returns a *ipam.NoPoolError.
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
	if s.obeyed < queue && r >= queue {
		if s.family, err = s.outsideQueue(s.family); err != nil {
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
	case o.result == usedUp && !s.final:
		return nextSource
	}
	return giveUp
}
