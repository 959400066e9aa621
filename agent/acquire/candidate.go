// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"iter"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Source is a kind of addresses that an ADD may win. The sources differ in these fields.
type Source struct {
	// Name is for tests and for people.
	Name string
	// concerns reports whether the source may have an address for a search whose pools obey its rules.
	// MayFind asks before the rules are applied. Nil means yes.
	concerns func(*search) bool
	// find yields the candidates. An error ends the search, unless it says that the pools are full.
	find func(context.Context, *search) iter.Seq2[candidate, error]
	// obeys are the rules that exclude pools.
	obeys rules
	proof proof
	// final: if the pools of the source are full, the ADD ends. Otherwise the next source is asked.
	final bool
	// skipsSighted: an address that another host was heard to use a moment ago is no candidate.
	skipsSighted bool
	// learns: the address counts as a use of its pool on its parent. Such pairs get Warm addresses.
	learns bool
}

// concern reports whether the source may have an address for a search.
func (s Source) concern(of *search) bool { return s.concerns == nil || s.concerns(of) }

// rules exclude pools. Each value includes those before it. An ADD that waits for a full pool still asks
// the sources below queue (MayFind).
type rules int

const (
	anyPool rules = iota // also one that hands out no new address
	limits               // maxPerNamespace
	queue                // the earlier ADDs that wait for the pool
)

// proof is the way in which an address is proven to have no other speaker.
type proof int

const (
	// byProbe: probe, then claim (R4). A host without a record answers the probe, so no claim is ever
	// sent against it. It keeps the address, and the next candidate is tried.
	byProbe proof = iota
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

// candidate is an address of a Source, with the API write that gives it to the pod.
type candidate struct {
	pool    *v1alpha1.IPPool
	address attachment.Address
	// last is the lease as the last holder left it, nil if there is none.
	last *v1alpha1.IPLease
	// awaitRelease waits until the last holder releases the address, and reads last again. It may be nil.
	awaitRelease func(context.Context, *candidate) outcome
	// write also returns the evidence against an address that was watched. After an error other than
	// lease.ErrUncertain the pod has no lease of the address. It is nil only for the proof byHandOver.
	write func(context.Context, *candidate) (*v1alpha1.IPLease, doubt, error)
	// over ends the try. written: the lease was changed. It may be nil.
	over func(written bool)
}

// doubt is evidence against an address that came up while its lease was written.
type doubt struct {
	segment.Doubt
	who segment.Answer
}

// one yields one candidate, or an error.
func one(c candidate, err error) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) { yield(c, err) }
}

// fits reports whether the proof of a source fits its candidate: only a pod that stands behind its
// last holder writes no lease, and only a last holder can be asked.
func (p proof) fits(c *candidate) bool {
	return (c.write == nil) == (p == byHandOver) && (c.last != nil) == (p == byLastHolder)
}

// search is an ADD's search for an address of one family.
type search struct {
	*Try
	// Source is the one that is being asked.
	Source
	family ipam.Family
	// kept is the lease that is kept for the pod, or nil.
	kept *v1alpha1.IPLease
	// obeyed are the rules to which the pools of family were reduced.
	obeyed rules
}

// attempt is one try to win the address of a candidate.
type attempt struct {
	*search
	candidate
	lease *v1alpha1.IPLease
	// since is when the write of the lease began.
	since time.Time
	// lost: another pod has the lease.
	lost  bool
	claim segment.Claim
	// doubt is the evidence against an address that was watched.
	doubt doubt
	// verdict about the last holder.
	verdict segment.Verdict
}

// isWatched reports whether the address was watched until now, and no doubt came up.
func (a *attempt) isWatched() bool { return a.proof == byWatch && a.doubt.Doubt == segment.DoubtNone }

// isProbed reports whether a probe proves the address.
func (a *attempt) isProbed() bool { return a.proof == byProbe || a.proof == byWatch && !a.isWatched() }

func addressOf(pool *v1alpha1.IPPool, addr netip.Addr) attachment.Address {
	return attachment.Address{
		Addr: addr, Pool: pool.Name, Network: pool.Spec.Network, LeaseName: v1alpha1.LeaseName(pool.Spec.Network, addr),
	}
}

// result is the kind of an outcome.
type result int

const (
	won result = iota
	// notAddress: not this address. Another host or another pod has it.
	notAddress
	// usedUp: the source has no address, since its pools are full.
	usedUp
	// endOfADD: nothing else can succeed now, or a rule rejects the pool: the reason names the rule.
	endOfADD
)

// outcome is the outcome of one try to win an address, with the reason. The zero value is success.
type outcome struct {
	result
	why error
}

// ends returns the outcome endOfADD for an error, and success for nil.
func ends(err error) outcome {
	if err == nil {
		return outcome{}
	}
	return outcome{endOfADD, err}
}
