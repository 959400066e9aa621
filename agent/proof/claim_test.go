// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"net/netip"
	"testing"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// An ADD, a migration, a renewal and a verifier all ask by this table.
func TestTheQuestionAboutALastHolder(t *testing.T) {
	const mac = "02:00:00:00:00:03"
	self := Node{Name: "n1", Session: "uid/boot", Cluster: "cluster", OthersShare: func() bool { return true }}
	address := attachment.Address{Addr: netip.MustParseAddr("10.0.0.2"), Network: "lan", Token: 9}
	bound := func(node, session string, guarded bool) *v1alpha1.IPLease {
		return &v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{
			State: v1alpha1.StateBound, NodeName: node, Session: session,
			Holder: &v1alpha1.Holder{PodUID: "u", MAC: mac, Token: 5, Guarded: guarded},
		}}
	}
	after := func(reason v1alpha1.LeaseReason, node, session string) *v1alpha1.IPLease {
		l := bound("n1", "uid/boot", true)
		l.Spec.Previous = &v1alpha1.PreviousHolder{Node: node, Session: session, PodUID: "v", MAC: mac, Token: 3, Guarded: true, Reason: reason}
		return l
	}
	for _, row := range []struct {
		name                          string
		last                          *v1alpha1.IPLease
		token                         uint64
		endedHere, asserted, maySpeak bool
	}{
		{name: "there was none"},
		{name: "of this session", last: bound("n1", "uid/boot", true), token: 5, endedHere: true},
		{name: "of an earlier boot", last: bound("n1", "uid/before", true), token: 5},
		{name: "of another node", last: bound("n2", "uid/boot", true), token: 5},
		{name: "of another node, without a guard", last: bound("n2", "other/boot", false), token: 5, maySpeak: true},
		{name: "of an earlier boot, without a guard", last: bound("n1", "uid/before", false), token: 5},
		{name: "a recorded one of this session", last: after(v1alpha1.ReasonPodTerminating, "n1", "uid/boot"), token: 3, endedHere: true},
		{name: "a recorded one whose node is out of service", last: after(v1alpha1.ReasonOutOfService, "n2", "s"), token: 3, asserted: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			dead := row.last != nil && self.EndedHere(row.last)
			check.Equal(t, dead, row.endedHere, "it has ended here")
			c := self.Claim(v1alpha1.ModeEnforce, address, row.last)
			check.Equal(t, c.PreviousToken, row.token, "asked by token")
			check.Equal(t, c.PreviousMAC.String() == mac, row.last != nil, "asked at %s", c.PreviousMAC)
			check.That(t, c.Token == 9 && c.Network == claim.Network("cluster", "lan") && c.Mode == v1alpha1.ModeEnforce, "claim %+v", c)
			got := self.Verification(&v1alpha1.IPPool{}, c, row.last, dead).Evidence()
			check.That(t, got.SlotDead == row.endedHere && got.Asserted == row.asserted && got.Unguarded == row.maySpeak && got.OthersShare, "evidence %+v", got)
		})
	}
}
