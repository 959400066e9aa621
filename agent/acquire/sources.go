// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"iter"
)

// Source is a kind of addresses that an ADD may win. The sources differ in these fields.
type Source struct {
	// Name is for tests and for people.
	Name string
	// concerns reports whether the source may have an address for a search whose pools obey its rules.
	// mayFind asks before the rules are applied. Nil means yes.
	concerns func(*search) bool
	// find yields the candidates, without those that the search has rejected. An error ends the search,
	// unless it says that the pools are full.
	find func(context.Context, *search) iter.Seq2[candidate, error]
	// obeys are the rules that exclude pools.
	obeys rules
	proof provenBy
	// insists: the pod wants the very address of the source, so the ADD ends if the address is rejected.
	// Otherwise the next candidate is tried.
	insists bool
	// waits: if the pools of the source are full, the ADD waits for them. Otherwise the next source is
	// asked.
	waits bool
	// skipsSighted: an address that another host was heard to use a moment ago is no candidate.
	skipsSighted bool
	// learns: the address counts as a use of its pool on its parent. Such pairs get Warm addresses.
	learns bool
}

// Sources returns all sources in the order in which an ADD asks them. The rules only grow along the
// list. A wish has reduced the pools to its addresses (ipam.Wish). An address that the interface insists on is a requested one.
func Sources() []Source {
	return []Source{
		{Name: "behind", concerns: isStandby, find: behind, proof: byHandOver, insists: true},
		{Name: "kept", concerns: hasKept, find: keptFor, proof: byLastHolder, insists: true},
		{Name: "offered", concerns: hasOffer, find: offered, obeys: limits, proof: byProbe, waits: true, learns: true},
		{Name: "requested Warm", concerns: isRequested, find: requestedWarm, obeys: limits, proof: byWatch, insists: true},
		{Name: "requested", concerns: isRequested, find: free, obeys: limits, proof: byProbe, insists: true, waits: true},
		{Name: "Warm", find: ready, obeys: queue, proof: byWatch, learns: true},
		{Name: "free", find: free, obeys: queue, proof: byProbe, skipsSighted: true, learns: true},
		// The speakers of sighted addresses may be gone by now: the probe decides.
		{Name: "sighted", find: free, obeys: queue, proof: byProbe, learns: true},
		// The pods of this node matter more than its stock.
		{Name: "unready Warm", find: anyWarm, obeys: queue, proof: byWatch, learns: true},
	}
}

// concern reports whether the source may have an address for a search.
func (s Source) concern(of *search) bool { return s.concerns == nil || s.concerns(of) }

// rules exclude pools. Each value includes those before it. An ADD that waits for a full pool still asks
// the sources below queue (mayFind).
type rules int

const (
	anyPool rules = iota // also one that hands out no new address
	limits               // maxPerNamespace
	queue                // the earlier ADDs that wait for the pool
)

// provenBy is the way in which an address is proven to have no other speaker.
type provenBy int

const (
	// byProbe: probe, then claim (R4). A host without a record answers the probe, so no claim is ever
	// sent against it. It keeps the address, and the next candidate is tried.
	byProbe provenBy = iota
	// byWatch: the address was proven, and is watched since. If no doubt came up, it is claimed
	// after the answer; otherwise it is proven by a probe.
	byWatch
	// byLastHolder: claim, then ask (R8). The last holder is on record, and must fall silent. If a
	// host answers, the ADD of a pod whose name keeps the address ends.
	byLastHolder
	// byHandOver: the last holder still has the address, so the pod stays fenced (R15). No lease is
	// written.
	byHandOver
)

// fits reports whether the proof of a source fits its candidate: only a pod that stands behind its
// last holder writes no lease, and only a last holder can be asked.
func (p provenBy) fits(c *candidate) bool {
	return (c.write == nil) == (p == byHandOver) && (c.last != nil) == (p == byLastHolder)
}

// outcome is the outcome of a try, with the reason. The zero value is success.
type outcome struct {
	result
	why error
}

// result is the kind of an outcome.
type result int

const (
	won result = iota
	// lost: another host or another pod has the address.
	lost
	// rejected: a rule, or a fact about the address or its pool, is against it. An address that the pod
	// insists on ends the ADD; otherwise another one is tried.
	rejected
	// poolRejected: as rejected, for all addresses of the pool.
	poolRejected
	// usedUp: the source has no address, since its pools are full.
	usedUp
	// endOfADD: nothing else can succeed now.
	endOfADD
)

// ends returns the outcome endOfADD for an error, and success for nil.
func ends(err error) outcome { return failed(endOfADD, err) }

// failed returns an outcome for an error, and success for nil.
func failed(as result, err error) outcome {
	if err == nil {
		return outcome{}
	}
	return outcome{as, err}
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
func after(r result, s Source) next {
	switch {
	case r == won:
		return answerWith
	case r == lost, (r == rejected || r == poolRejected) && !s.insists:
		return nextCandidate
	case r == usedUp && !s.waits:
		return nextSource
	}
	return giveUp
}
