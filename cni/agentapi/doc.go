// SPDX-License-Identifier: Apache-2.0

// Package agentapi is the protocol between the CNI plugin and the agent: JSON over HTTP on the
// agent's unix socket.
//
//	POST /v1/add     AddRequest   → AddResponse
//	POST /v1/del     DelRequest   → nothing
//	POST /v1/check   CheckRequest → nothing
//	POST /v1/gc      GCRequest    → nothing
//	GET  /v1/status               → nothing
//
// The status of a success is 200 or 204. Any other answer holds an Error, whose code is a CNI error
// code. The connection is the call: when the plugin closes it before the answer, the agent undoes
// the ADD.
//
// The package imports the standard library only. The plugin process loads all imports once for each
// ADD on the node.
package agentapi
