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
	family := "IPv4"
	if e.IPv6 {
		family = "IPv6"
	}
	if e.Source == "" {
		return fmt.Sprintf("no pool for %s: no annotation of the pod or its namespace and no CNI configuration names one, "+
			"and no pool has spec.default", e.Interface)
	}
	clauses := make([]string, len(e.Rejected))
	for i, r := range e.Rejected {
		clauses[i] = fmt.Sprintf("pool %s: %s", r.Pool, r.Detail)
	}
	return fmt.Sprintf("no %s address for %s from the pools of %s: %s", family, e.Interface, e.Source, strings.Join(clauses, "; "))
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
