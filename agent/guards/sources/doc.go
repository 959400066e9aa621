// SPDX-License-Identifier: Apache-2.0

// Package sources tells the kernel what each pod may send, as the pools of its addresses say, and
// reports all other frames.
package sources
