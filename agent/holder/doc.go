// SPDX-License-Identifier: Apache-2.0

// Package holder carries out ADD, CHECK, DEL and GC: it binds and releases addresses of pods.
//
// The order is the guarantee. ADD: the steps of package acquire, binding on disk, answer (R5). DEL: slot dead,
// releasing on disk, lease gone (R6). The undo of an ADD is a DEL, but it keeps no new address for a
// name.
package holder
