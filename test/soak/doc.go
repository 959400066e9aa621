// SPDX-License-Identifier: Apache-2.0

// Package soak lets many pods come and go on a small pool, with random faults, and counts what must not
// happen: an address with two speakers, and an address that nobody gives back.
package soak
