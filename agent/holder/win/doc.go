// SPDX-License-Identifier: Apache-2.0

// Package win wins addresses for a pod's interface: it asks the sources of addresses in their
// order, and makes the address of a candidate the pod's.
//
// The order of the steps is the guarantee: intent on disk, guard on the interface, lease in the
// API, token in the kernel, probe, claim (R4, R5, R10).
package win
