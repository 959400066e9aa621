// SPDX-License-Identifier: Apache-2.0

// Package fakenode is a node for tests. Its agent's holders, guards and recovery are real. Its API
// server, kernel, segment and Warm leases are in memory. The agent can die before any of its
// effects, and start again.
package fakenode
