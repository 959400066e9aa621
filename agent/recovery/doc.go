// SPDX-License-Identifier: Apache-2.0

// Package recovery makes journal, kernel and API server agree again after a
// restart of the agent, a boot of the node, an outage of the API server, or the
// loss of a record. A GET of each lease decides (R7).
package recovery
