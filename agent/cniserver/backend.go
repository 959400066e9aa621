// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/diagnosis"
)

// Backend carries out the calls of the plugin.
//
// The server makes one call at a time for an attachment. Calls for different attachments, GC and
// Status run concurrently. Package refusal has the CNI codes of the returned errors.
type Backend interface {
	// Add returns addresses for an interface, or guards the interface if the request is chained.
	// When ctx ends, Add undoes its work and returns an error.
	Add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error)
	// Answered is called after the answer of an Add that returned addresses was written.
	Answered(agentapi.Attachment)
	// Del fences and frees the addresses of the attachment. It succeeds if there are none. It
	// returns nil once the call is carried out or journalled. Its ctx ends at the deadline, and goes
	// on when the plugin disconnects.
	Del(ctx context.Context, r agentapi.DelRequest) error
	// Check returns an error if the attachment does not hold its addresses or is not guarded.
	Check(ctx context.Context, r agentapi.CheckRequest) error
	// GC fences and frees each attachment of r.Network that is not in r.Valid.
	GC(ctx context.Context, r agentapi.GCRequest) error
	// Status returns an error if Add would fail for every pod.
	Status(ctx context.Context) error
	// Diagnose tells a person about the node.
	Diagnose(ctx context.Context, r diagnosis.Request) (*diagnosis.Report, error)
}
