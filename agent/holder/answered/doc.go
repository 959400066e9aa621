// SPDX-License-Identifier: Apache-2.0

// Package answered does the steps that follow the answer of an ADD: it claims and announces the
// addresses, pins the guard, follows the MAC, and wins an address that is fenced (R10, R15).
package answered
