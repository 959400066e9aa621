// SPDX-License-Identifier: Apache-2.0

// Package acquire wins the addresses of a pod's interface: Acquirer.Acquire asks the sources of
// addresses in their order, and tries the addresses that they find.
//
// The order of the steps is the guarantee: the intent is on disk; the lease is written, while the guard
// is attached; the guard enforces; the kernel has the token; probe; claim (R4, R5, R10).
package acquire
