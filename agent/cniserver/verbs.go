package cniserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// add runs in the lane of its attachment. A DEL that waits in the spool goes
// first: carried out later, it would free what this call is about to give.
func (s *Server) add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.callTimeout)
	defer cancel()
	ctx, leave, err := s.lanes.enter(ctx, r.Attachment, yields)
	if err != nil {
		return nil, fmt.Errorf("wait for an earlier call: %w", err)
	}
	defer leave()
	if err := s.carryOut(ctx, r.Attachment); err != nil {
		return nil, agentapi.Errorf(agentapi.CodeTryAgainLater, "an earlier DEL comes first and failed: %w", err)
	}
	answer, err := s.backend.Add(ctx, r)
	if err != nil {
		return nil, describe(ctx, err)
	}
	if ctx.Err() != nil {
		return nil, s.undo(ctx, r)
	}
	return answer, nil
}

// added tells the backend that the plugin has its addresses. A chained ADD gave none.
func (s *Server) added(r agentapi.AddRequest) {
	if !r.Chained {
		s.backend.Answered(r.Attachment)
	}
}

// undo takes back an Add that succeeded after its context had ended: nobody
// will hear of the addresses.
func (s *Server) undo(ctx context.Context, r agentapi.AddRequest) error {
	cause := context.Cause(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.callTimeout)
	defer cancel()
	err := s.backend.Del(ctx, agentapi.DelRequest{
		Attachment: r.Attachment, NetNS: r.NetNS, Pod: r.Pod, Network: r.Network, Chained: r.Chained,
	})
	if err != nil {
		return fmt.Errorf("undo the ADD (%w): %w; the runtime's DEL will repeat it", cause, err)
	}
	return fmt.Errorf("undone: %w", cause)
}

// del goes on when the plugin leaves: the runtime may take that for done.
func (s *Server) del(ctx context.Context, r agentapi.DelRequest) (nothing, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.callTimeout)
	defer cancel()
	ctx, leave, err := s.lanes.enter(ctx, r.Attachment, insists)
	if err != nil {
		return nothing{}, fmt.Errorf("wait for an earlier call: %w", err)
	}
	defer leave()
	if err := s.backend.Del(ctx, r); err != nil {
		return nothing{}, describe(ctx, err)
	}
	// A DEL that waits in the spool has been done with this one, unless this is
	// the chained one, which frees nothing.
	if r.Chained {
		return nothing{}, nil
	}
	if err := s.spool.Remove(r.Attachment); err != nil {
		s.log.Error(err, "a spooled DEL will be repeated", "container", r.ContainerID, "interface", r.Interface)
	}
	return nothing{}, nil
}

func (s *Server) check(ctx context.Context, r agentapi.CheckRequest) (nothing, error) {
	ctx, cancel := context.WithTimeout(ctx, s.callTimeout)
	defer cancel()
	ctx, leave, err := s.lanes.enter(ctx, r.Attachment, yields)
	if err != nil {
		return nothing{}, fmt.Errorf("wait for an earlier call: %w", err)
	}
	defer leave()
	return nothing{}, describe(ctx, s.backend.Check(ctx, r))
}

// gc takes no lane: CNI forbids runtimes to make other calls during a GC.
func (s *Server) gc(ctx context.Context, r agentapi.GCRequest) (nothing, error) {
	ctx, cancel := context.WithTimeout(ctx, s.callTimeout)
	defer cancel()
	if r.Valid == nil {
		return nothing{}, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig,
			"GC of network %s without the list of valid attachments: nothing is released", r.Network)
	}
	return nothing{}, describe(ctx, s.backend.GC(ctx, r))
}

func (s *Server) status(ctx context.Context, _ nothing) (nothing, error) {
	ctx, cancel := context.WithTimeout(ctx, s.callTimeout)
	defer cancel()
	return nothing{}, describe(ctx, s.backend.Status(ctx))
}

// describe adds to an error why the call was ended, if it was: what comes from
// deep inside does not tell.
func describe(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}
