// Package reclaim takes addresses back from holders that do not give them back.
//
// What to do is decided by Decide, a pure function over Facts. The Reconciler
// gathers the facts and carries the Action out by rule R11: nothing is
// reclaimed on one observation. The cached view proposes, a live read of the
// same objects has to agree, and the write names uid and resourceVersion of the
// lease that was judged.
//
// Reclaiming hands nothing out. It quarantines: an agent then proves the
// previous holder fenced or silent (R1), and only that agent frees the address.
package reclaim
