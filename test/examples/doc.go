// SPDX-License-Identifier: Apache-2.0

// Package examples tests the files of examples/: a real API server accepts each document, the
// controller finds each pool Ready, and each pod gets its addresses from the pool that the file names.
package examples
