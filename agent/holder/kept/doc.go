// SPDX-License-Identifier: Apache-2.0

// Package kept decides which of the addresses kept for a pod's interface the interface gets again.
// It has no effects.
package kept
