// SPDX-License-Identifier: Apache-2.0

// Package release ends what an attachment holds, and decides what becomes of its addresses.
//
// The order is the guarantee: slot dead, releasing on disk, lease gone (R6).
package release
