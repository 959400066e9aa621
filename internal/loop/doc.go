// SPDX-License-Identifier: Apache-2.0

// Package loop has the parts of a loop that keeps something in order: its rest, its wake, and the pauses
// and log lines of a step that fails.
package loop
