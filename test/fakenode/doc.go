// SPDX-License-Identifier: Apache-2.0

// Package fakenode is a node for tests: its agent's holders, guards and recovery
// are real, its API server, kernel, segment and Warm leases are in memory. The
// agent can die before any of its effects, and start again.
package fakenode
