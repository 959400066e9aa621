// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// ClaimOf returns the claim for an address with the token of its lease. last is the lease as the
// last holder left it, nil if no holder is recorded.
func (b *Base) ClaimOf(pool *v1alpha1.IPPool, address attachment.Address, last *v1alpha1.IPLease) segment.Claim {
	c := segment.Claim{
		Addr: address.Addr, Network: claim.Network(b.Cluster, address.Network), Token: address.Token, Mode: pool.ConflictMode(),
	}
	if last != nil {
		c.PreviousMAC, c.PreviousToken = PreviousMAC(last), last.LastToken()
	}
	return c
}

// Verify claims an address and looks for other speakers. last is nil if there was no other holder.
func (b *Base) Verify(ctx context.Context, seg Segment, pool *v1alpha1.IPPool, c segment.Claim, last *v1alpha1.IPLease) (segment.Verdict, segment.Evidence, error) {
	v := segment.Verification{
		Claim: c, Probe: segment.ParamsOf(pool), Gateway: pool.Gateway(), OthersShare: b.OthersShare(),
	}
	if last != nil {
		v.SlotDead, v.Asserted, v.Unguarded = b.EndedHere(last), lease.Asserted(&last.Spec), lease.MaySpeakUnfenced(last, b.Node, b.Session)
	}
	return seg.Verify(ctx, v)
}

// PreviousMAC returns the MAC of the last holder, or nil. It may be the MAC of the new interface.
func PreviousMAC(old *v1alpha1.IPLease) net.HardwareAddr {
	text := old.Spec.Holder.MAC
	if p := old.Spec.Previous; p != nil && p.MAC != "" {
		text = p.MAC
	}
	mac, _ := net.ParseMAC(text)
	return mac
}

// EndedHere reports whether the last holder of a lease was bound by this session.
// Once its slots are killed, by a verifier or by its own DEL, it is proven silent.
func (b *Base) EndedHere(l *v1alpha1.IPLease) bool {
	if p := l.Spec.Previous; p != nil {
		return p.Node == b.Node && p.Session == b.Session
	}
	return l.Spec.State == v1alpha1.StateBound && l.Spec.NodeName == b.Node && l.Spec.Session == b.Session
}
