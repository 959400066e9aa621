// Package agentapi is what the CNI plugin and the agent say to each other:
// JSON over HTTP on the agent's unix socket.
//
//	POST /v1/add     AddRequest   → AddResponse
//	POST /v1/del     DelRequest   → nothing
//	POST /v1/check   CheckRequest → nothing
//	POST /v1/gc      GCRequest    → nothing
//	GET  /v1/status               → nothing
//
// Success is 200 or 204. Anything else carries an Error, whose code is a CNI
// error code. The connection is the call: when it closes before the answer,
// the agent undoes what the call has done so far.
//
// The package imports the standard library only. Whatever it imports is loaded
// by the plugin process, once for each ADD on the node.
package agentapi
