// SPDX-License-Identifier: Apache-2.0

// Package obey tells the kernel which claims it obeys: those of this cluster's networks with a
// token that this cluster's store can have given.
package obey
