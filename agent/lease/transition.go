package lease

import (
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Evidence is what was heard on the wire.
type Evidence struct {
	// MAC that spoke for the address, empty when nobody did.
	MAC string
	// Source is probe, observer or guard.
	Source string
	// Message for people, such as why a verdict is Unknown.
	Message string
}

// Finding is what a verification means for the record.
type Finding int

const (
	// FindingUnknown: not safe, and nobody answered. The zero value.
	FindingUnknown Finding = iota
	// FindingSafe: the previous holder is fenced, gone or proven silent.
	FindingSafe
	// FindingAnswered: somebody speaks for the address.
	FindingAnswered
)

// describe says for people in which state a lease is and whose.
func describe(s *v1alpha1.IPLeaseSpec) string { return string(s.State) }
