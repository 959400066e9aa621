// SPDX-License-Identifier: Apache-2.0

// Package release releases the addresses of an attachment, and decides about their leases.
//
// The order is the guarantee: slot dead, releasing on disk, lease gone (R6).
package release
