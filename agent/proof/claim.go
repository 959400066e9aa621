// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Node is this node, as far as a proof depends on it. All fields are required.
type Node struct {
	// Name is that of the Node object, Session the node's current life, and Cluster the UID of the
	// kube-system namespace.
	Name, Session, Cluster string
	// OthersShare reports whether there are other agents that this agent may hear.
	OthersShare func() bool
}

// Claim returns the claim for an address with the token of its lease, in the mode of its pool. last is the lease as the last
// holder left it, nil if no holder is recorded.
func (n Node) Claim(mode v1alpha1.ConflictMode, address attachment.Address, last *v1alpha1.IPLease) segment.Claim {
	c := segment.Claim{
		Addr: address.Addr, Network: claim.Network(n.Cluster, address.Network), Token: address.Token, Mode: mode,
	}
	if last != nil {
		c.PreviousMAC, c.PreviousToken = last.LastMAC(), last.LastToken()
	}
	return c
}

// Verification returns the question whether the last holder of an address is silent, with the evidence
// that its lease gives. last is nil if there was no other holder. dead: this node has killed the
// slots of the last holder, which it had bound itself (EndedHere).
func (n Node) Verification(pool *v1alpha1.IPPool, c segment.Claim, last *v1alpha1.IPLease, dead bool) segment.Verification {
	v := segment.Verification{
		Claim: c, Probe: segment.ParamsOf(pool), Gateway: pool.Gateway(), OthersShare: n.OthersShare(), SlotDead: dead,
	}
	if last != nil {
		v.Asserted, v.Unguarded = lease.Asserted(&last.Spec), lease.MaySpeakUnfenced(last, n.Name, n.Session)
	}
	return v
}

// EndedHere reports whether the last holder of a lease was bound by this session.
// Once its slots are killed, by a verifier or by its own DEL, it is proven silent (R8).
func (n Node) EndedHere(l *v1alpha1.IPLease) bool {
	if p := l.Spec.Previous; p != nil {
		return p.Node == n.Name && p.Session == n.Session
	}
	return l.Spec.State == v1alpha1.StateBound && l.Spec.NodeName == n.Name && l.Spec.Session == n.Session
}
