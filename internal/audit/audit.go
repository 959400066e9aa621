// SPDX-License-Identifier: Apache-2.0

// Package audit writes the audit log: one line with fixed fields for each grant, free, reclaim,
// fence and conflict. By it an operator finds the holder that an address had at 14:03 (R14).
package audit

import (
	"net/netip"
	"strconv"

	"github.com/go-logr/logr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Kind is the kind of an audit line.
type Kind string

// The kinds of audit lines.
const (
	Grant    Kind = "grant"
	Free     Kind = "free"
	Reclaim  Kind = "reclaim"
	Fence    Kind = "fence"
	Conflict Kind = "conflict"
	// Move: a virtual address has another speaker.
	Move Kind = "move"
)

// Kinds returns all kinds of audit lines.
func Kinds() []Kind { return []Kind{Grant, Free, Reclaim, Fence, Conflict, Move} }

// Record holds the fixed fields of an audit line. Unknown fields stay empty and are written too, so
// that each line has the same columns.
type Record struct {
	Address                                          netip.Addr
	Network, Pool, Namespace, Pod, PodUID, Node, MAC string
	Token                                            uint64
	Reason                                           string
}

// Of returns the record of a lease as last read or written. node is the node of the holder, or the
// node that acts.
func Of(lease *v1alpha1.IPLease, node, reason string) Record {
	r := Record{Pool: lease.Spec.Pool, Node: node, Reason: reason}
	r.Network, r.Address, _ = v1alpha1.ParseLeaseName(lease.Name)
	r.Token, _ = strconv.ParseUint(lease.ResourceVersion, 10, 64)
	if h := lease.Spec.Holder; h != nil {
		r.Namespace, r.Pod, r.PodUID, r.MAC = h.Namespace, h.Pod, h.PodUID, h.MAC
	}
	return r
}

// Log writes one audit line, whatever the level of the log is. Safe for concurrent use.
func Log(l logr.Logger, kind Kind, r Record) {
	sink := l.WithName("audit").GetSink()
	if sink == nil { // the logger writes nothing
		return
	}
	// Only the logger asks for the level. Its sink does not.
	sink.Info(0, string(kind), "address", r.Address.String(), "network", r.Network, "pool", r.Pool,
		"namespace", r.Namespace, "pod", r.Pod, "uid", r.PodUID, "node", r.Node, "mac", r.MAC,
		"token", r.Token, "reason", r.Reason)
}
