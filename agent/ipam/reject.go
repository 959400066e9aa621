package ipam

import (
	"fmt"
	"strings"
)

// Reason is why a pool cannot serve a request; bounded, for metrics.
type Reason string

// The reasons.
const (
	NotFound          Reason = "NotFound"
	Deleting          Reason = "Deleting"
	Disabled          Reason = "Disabled"
	WrongFamily       Reason = "WrongFamily"
	Invalid           Reason = "Invalid"
	NotReady          Reason = "NotReady"
	NodeName          Reason = "NodeName"
	NodeAffinity      Reason = "NodeAffinity"
	NamespaceName     Reason = "NamespaceName"
	NamespaceAffinity Reason = "NamespaceAffinity"
	PodAffinity       Reason = "PodAffinity"
	MultusName        Reason = "MultusName"
	AllExcluded       Reason = "AllExcluded"
	AllReserved       Reason = "AllReserved"
	NoNextHop         Reason = "NoNextHop"
	Exhausted         Reason = "Exhausted"
)

// Rejection is a pool that was ruled out.
type Rejection struct {
	Pool   string // name, or the pattern that matches no pool
	Reason Reason
	Detail string // a clause for people: "it is disabled"
}

// NoPoolError says that no pool can serve a family, and for each candidate why.
type NoPoolError struct {
	IPv6      bool
	Interface string // "pod ns/name interface eth0"
	Source    string // who named the candidates; empty when nobody named any
	Rejected  []Rejection
}

func (e *NoPoolError) Error() string {
	head, clauses := e.parts()
	return head + strings.Join(clauses, "; ")
}

// Within is Error in n bytes at most, where that is long enough to say
// anything: candidates that do not fit are counted, those that do are told
// with all of their reason.
func (e *NoPoolError) Within(n int) string {
	if text := e.Error(); len(text) <= n {
		return text
	}
	head, clauses := e.parts()
	const rest = "… and %d more"
	left := n - len(head) - len(fmt.Sprintf(rest, len(clauses)))
	var told []string
	for _, clause := range clauses {
		if size := len(clause) + len("; "); size <= left {
			told = append(told, clause)
			left -= size
		}
	}
	return head + strings.Join(append(told, fmt.Sprintf(rest, len(clauses)-len(told))), "; ")
}

// parts are what is told first, and a clause for each candidate.
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

// Exhausted tells whether a pool that fits the pod was ruled out only because
// no address in it is free.
func (e *NoPoolError) Exhausted() bool {
	for _, r := range e.Rejected {
		if r.Reason == Exhausted {
			return true
		}
	}
	return false
}
