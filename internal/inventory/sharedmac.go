// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// ShareMAC reports whether the holders of two leases of a segment have one MAC on two nodes: switches send
// the frames for it to the node that has spoken last. The source and the target of a live migration have
// one identity and may do so for a time. A lease that is not Bound says nothing about a present holder.
func ShareMAC(a, b *v1alpha1.IPLeaseSpec) bool {
	return a.State == v1alpha1.StateBound && b.State == v1alpha1.StateBound && a.Holder != nil && b.Holder != nil &&
		a.Holder.MAC != "" && a.Holder.MAC == b.Holder.MAC && a.NodeName != b.NodeName && !owner.Same(a.Holder, b.Holder)
}

// PlaceOf names the holder of a lease with its node.
func PlaceOf(s *v1alpha1.IPLeaseSpec) string { return PodOf(s) + " on node " + s.NodeName }
