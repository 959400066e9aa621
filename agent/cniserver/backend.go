package cniserver

import (
	"context"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// Backend is what the server calls: the allocator and the guards behind it.
//
// Calls for one attachment come one at a time; calls for different ones, and
// GC and Status, come concurrently with all others. An *agentapi.Error in the
// chain of a returned error reaches the runtime with its code and message; any
// other error is answered as an internal one.
type Backend interface {
	// Add gives addresses to an interface, or guards them when the request is
	// chained. When ctx ends it undoes what it has done and returns an error.
	Add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error)
	// Answered is called once the answer of an Add that gave addresses is written.
	Answered(agentapi.Attachment)
	// Del fences and frees whatever the attachment holds. Holding nothing is
	// success. It returns nil once the call cannot be lost any more: carried out
	// or journalled. Its ctx ends by deadline only, never because the plugin left.
	Del(ctx context.Context, r agentapi.DelRequest) error
	// Check returns an error when the attachment does not hold its addresses or is not guarded.
	Check(ctx context.Context, r agentapi.CheckRequest) error
	// GC fences and frees each attachment of r.Network that is not in r.Valid.
	GC(ctx context.Context, r agentapi.GCRequest) error
	// Status returns an error when Add would fail for every pod.
	Status(ctx context.Context) error
}
