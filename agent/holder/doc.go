// Package holder binds pod interfaces to their addresses and lets go of them
// again: what ADD, DEL, CHECK, GC and a restart of the agent do, in which order.
//
// The order is the guarantee. ADD: intent on disk, guard on the interface,
// lease in the API, token in the kernel, probe, claim, binding on disk, answer
// (R4, R5, R10). DEL: slot dead, releasing on disk, lease gone (R6). Undo of an
// ADD is a DEL, but keeps no new address for a name. After a restart a GET of
// each lease decides (R7).
package holder
