// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/warm"
)

// Warm is the stock of this node's Warm leases. *warm.Keeper implements it.
type Warm interface {
	// Take reserves a lease for the caller until PutBack or Ended.
	Take(warm.Wish) (warm.Stocked, bool)
	// Doubt returns the evidence of the kernel against a lease that was taken as ready;
	// DoubtNone if there is none. For DoubtSpoken it also returns the other host.
	Doubt(warm.Stocked) (segment.Doubt, segment.Answer)
	// PutBack returns a lease that was not written.
	PutBack(warm.Stocked)
	// Ended reports that a lease is no longer Warm.
	Ended(warm.Stocked)
	// Used reports that a pod of this node got an address of a pool on a parent, without a request for
	// a particular one.
	Used(pool, parent string)
}
