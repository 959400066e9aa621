// SPDX-License-Identifier: Apache-2.0

// Package waiting holds the ADDs of this node that wait for an address of a full pool. It says for which pools
// they wait, is told of addresses that come free, and offers each of them to the ADD that has waited longest. An
// offer reserves nothing: any other ADD may create the lease first.
package waiting
