// Package audit writes the audit log: one line for each grant, free, reclaim,
// fence and conflict, with fixed fields, because leases vanish and "who had it
// at 14:03" must have an answer (R14).
package audit

import (
	"net/netip"
	"strconv"

	"github.com/go-logr/logr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Kind is what happened to an address.
type Kind string

// The kinds of audit lines.
const (
	Grant    Kind = "grant"
	Free     Kind = "free"
	Reclaim  Kind = "reclaim"
	Fence    Kind = "fence"
	Conflict Kind = "conflict"
)

// Record holds the fixed fields of an audit line. Unknown fields stay empty
// and are written all the same, so that a line can be cut by column.
type Record struct {
	Address   netip.Addr
	Pool      string
	Namespace string
	Pod       string
	PodUID    string
	Node      string
	MAC       string
	Token     uint64
	Reason    string
}

// Of is about a lease as it was written last, on or by a node. What of it cannot
// be read stays empty: name and resourceVersion come from the API server.
func Of(lease *v1alpha1.IPLease, node, reason string) Record {
	r := Record{Pool: lease.Spec.Pool, Node: node, Reason: reason}
	r.Address, _ = netip.ParseAddr(lease.Spec.Address)
	r.Token, _ = strconv.ParseUint(lease.ResourceVersion, 10, 64)
	if h := lease.Spec.Holder; h != nil {
		r.Namespace, r.Pod, r.PodUID, r.MAC = h.Namespace, h.Pod, h.PodUID, h.MAC
	}
	return r
}

// Log writes one audit line. Safe for concurrent use.
func Log(l logr.Logger, kind Kind, r Record) {
	l.WithName("audit").Info(string(kind),
		"address", r.Address.String(),
		"pool", r.Pool,
		"namespace", r.Namespace,
		"pod", r.Pod,
		"uid", r.PodUID,
		"node", r.Node,
		"mac", r.MAC,
		"token", r.Token,
		"reason", r.Reason,
	)
}
