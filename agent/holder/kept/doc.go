// SPDX-License-Identifier: Apache-2.0

// Package kept decides which of the addresses that are kept for a pod's interface it has again. All is
// pure.
package kept
