// SPDX-License-Identifier: Apache-2.0

// Package waiting has the ADDs of this node that wait for an address of a full pool. It watches the
// leases of such a pool only while an ADD waits for it, and offers each address that comes free to
// the ADD that has waited longest. Nobody else is kept from the address: creating its lease decides.
package waiting
