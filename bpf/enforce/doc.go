// SPDX-License-Identifier: Apache-2.0

// Package enforce keeps the guards of slots enforcing on the interfaces of pods, from their first
// frame until the interface is gone.
package enforce
