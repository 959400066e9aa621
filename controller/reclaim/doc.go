// SPDX-License-Identifier: Apache-2.0

// Package reclaim takes addresses back from holders that do not release them.
//
// Decide is a pure function from Facts to an Action. The Reconciler gathers the facts and carries
// out the action by rule R11: nothing is reclaimed on one observation. The cached view proposes an
// action. A live read of the same objects must confirm it. The write names uid and resourceVersion
// of the lease that was judged.
//
// Reclaim frees no address. It quarantines the address. An agent then proves that the previous
// holder is fenced or silent (R1), and only that agent frees the address.
package reclaim
