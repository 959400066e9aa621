// SPDX-License-Identifier: Apache-2.0

// Package lease is the state machine of the IPLease: pure transitions from one
// spec to the next, pure decisions of this node about a lease, and the Store that
// writes each transition to the API server in one guarded write.
package lease
