// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/internal/poolset"
)

// Reason is why a pool cannot serve a request. It may be a label of metrics, so there are few.
type Reason string

// The reasons.
const (
	NotFound          Reason = "NotFound"
	NotNamed          Reason = "NotNamed"
	Deleting                 = Reason(poolset.Deleting)
	Disabled                 = Reason(poolset.Disabled)
	WrongFamily       Reason = "WrongFamily"
	Invalid                  = Reason(poolset.Invalid)
	NotReady          Reason = "NotReady"
	NodeName          Reason = "NodeName"
	NodeAffinity      Reason = "NodeAffinity"
	OtherParent       Reason = "OtherParent"
	NamespaceName     Reason = "NamespaceName"
	NamespaceAffinity Reason = "NamespaceAffinity"
	PodAffinity       Reason = "PodAffinity"
	Application       Reason = "Application"
	MultusName        Reason = "MultusName"
	AllExcluded              = Reason(poolset.AllExcluded)
	AllReserved              = Reason(poolset.AllReserved)
	Overlapping              = Reason(poolset.Overlapping)
	NoNextHop         Reason = "NoNextHop"
	Exhausted         Reason = "Exhausted"
	NamespaceFull     Reason = "NamespaceFull"
	PassedOver        Reason = "PassedOver"
)

// Rejection is a pool that cannot serve a request, with the reason.
type Rejection struct {
	Pool   string // name, or the pattern that matches no pool
	Reason Reason
	Detail string // a clause for people: "it is disabled"
}

// NoPoolError is the error of a family that no pool can serve. It has the reason for each candidate.
type NoPoolError struct {
	IPv6      bool
	Interface string // "pod ns/name interface eth0"
	Source    string // the source that names the candidates; empty if no source names any
	Rejected  []Rejection
}

func (e *NoPoolError) Error() string {
	head, clauses := e.parts()
	return head + strings.Join(clauses, "; ")
}

// NoPools returns the NoPoolErrors of all families that an error wraps.
func NoPools(err error) (all []*NoPoolError) {
	if families := interface{ Unwrap() []error }(nil); errors.As(err, &families) {
		for _, err := range families.Unwrap() {
			all = append(all, NoPools(err)...)
		}
	} else if none, ok := errors.AsType[*NoPoolError](err); ok {
		all = append(all, none)
	}
	return all
}

// Within returns the text of Error in at most n bytes, if n has room for its beginning. Each candidate
// is in the text with its whole reason, or is only counted if it does not fit.
func (e *NoPoolError) Within(n int) string {
	if text := e.Error(); len(text) <= n {
		return text
	}
	head, clauses := e.parts()
	const rest = "… and %d more"
	left := n - len(head) - len(fmt.Sprintf(rest, len(clauses)))
	var fitting []string
	for _, clause := range clauses {
		if size := len(clause) + len("; "); size <= left {
			fitting = append(fitting, clause)
			left -= size
		}
	}
	return head + strings.Join(append(fitting, fmt.Sprintf(rest, len(clauses)-len(fitting))), "; ")
}

// parts returns the beginning of the text, and a clause for each candidate.
func (e *NoPoolError) parts() (head string, clauses []string) {
	family := "IPv4"
	if e.IPv6 {
		family = "IPv6"
	}
	if e.Source == "" {
		return fmt.Sprintf("no pool for %s: no annotation of the pod or its namespace and no CNI configuration names one, "+
			"and no pool has spec.default", e.Interface), nil
	}
	clauses = make([]string, len(e.Rejected))
	for i, r := range e.Rejected {
		clauses[i] = fmt.Sprintf("pool %s: %s", r.Pool, r.Detail)
	}
	return fmt.Sprintf("no %s address for %s from the pools of %s: ", family, e.Interface, e.Source), clauses
}

// Exhausted reports whether at least one pool was rejected only because none of its addresses is free.
func (e *NoPoolError) Exhausted() bool {
	return slices.ContainsFunc(e.Rejected, func(r Rejection) bool { return r.Reason == Exhausted })
}
