// SPDX-License-Identifier: Apache-2.0

// Package waiting holds the ADDs of this node that wait for an address of a full pool. It watches
// the leases of such a pool only while an ADD waits for it, and offers each free address to the ADD
// that has waited longest. An offer reserves nothing: any other ADD may create the lease first.
package waiting
