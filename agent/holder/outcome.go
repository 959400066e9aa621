// SPDX-License-Identifier: Apache-2.0

package holder

// result is the kind of an outcome.
type result int

const (
	won result = iota
	// notAddress: not this address. Another host or another pod has it.
	notAddress
	// notPool: not this pool. A rule speaks against it, and the reason says which one.
	notPool
	// usedUp: the source has no address, since its pools are full.
	usedUp
	// endOfADD: nothing else can succeed now.
	endOfADD
)

// outcome is the outcome of one try to win an address, with the reason. The zero value is success.
type outcome struct {
	result
	why error
}

// ends is the outcome of a step that an error ends, and success without one.
func ends(err error) outcome {
	if err == nil {
		return outcome{}
	}
	return outcome{endOfADD, err}
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
