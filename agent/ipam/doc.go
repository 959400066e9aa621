// SPDX-License-Identifier: Apache-2.0

// Package ipam chooses pools and addresses for the interface of a pod. Its functions compute with
// values: they use no API server and no kernel, and the caller passes the clock. The result is a
// proposal. The API server decides when the agent creates the lease.
package ipam
