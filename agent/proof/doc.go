// SPDX-License-Identifier: Apache-2.0

// Package proof verifies the Quarantined leases that are assigned to this node.
// It frees an address only after its last holder is proven fenced, gone or silent (R1).
package proof
