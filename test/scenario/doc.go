// SPDX-License-Identifier: Apache-2.0

// Package scenario plays, on a real cluster, what Fenceline promises: each
// promise is one scenario that sets its stage, does the damage, judges by frames
// that were captured on the underlay and by what a client heard, and leaves the
// cluster as it was. The demo and the end-to-end tests play the same scenarios.
package scenario
