// SPDX-License-Identifier: Apache-2.0

// Package scenario plays the promises of Fenceline on a real cluster. Each scenario is one promise.
// It sets its stage, causes the damage, and judges the frames captured on the underlay and the
// answers that a client got. Then it restores the cluster. The demo and the end-to-end tests play
// the same scenarios.
package scenario
