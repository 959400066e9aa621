// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// add runs in the lane of its attachment. It carries out a spooled DEL first. A later DEL would
// free the addresses that this call returns. The backend bounds its own work: most of the deadline is
// for an ADD that waits for an address of a full pool.
func (s *Server) add(ctx context.Context, r agentapi.AddRequest) (answer *agentapi.AddResponse, err error) {
	err = s.inLane(ctx, r.Attachment, yields, s.CallTimeout+s.WaitTimeout, func(ctx context.Context) (err error) {
		if err := s.carryOut(ctx, r.Attachment); err != nil {
			return fmt.Errorf("%w: %w", errEarlierDEL, err)
		}
		if answer, err = s.Backend.Add(ctx, r); err == nil && ctx.Err() != nil {
			return s.undo(ctx, r)
		}
		return describe(ctx, err)
	})
	return answer, err
}

// inLane runs a call in the lane of its attachment. timeout ends the call.
func (s *Server) inLane(ctx context.Context, a agentapi.Attachment, m cancellable, timeout time.Duration, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ctx, leave, err := s.lanes.enter(ctx, a, m)
	if err != nil {
		return refusal.New(refusal.Queued, "wait for an earlier call of the same interface: %w", err)
	}
	defer leave()
	return run(ctx)
}

// added notifies the backend that the plugin has its addresses. A chained ADD returned none.
func (s *Server) added(r agentapi.AddRequest) {
	if !r.Chained {
		s.Backend.Answered(r.Attachment)
	}
}

// undo releases the addresses of an Add that succeeded after its context had ended: the plugin
// never gets them.
func (s *Server) undo(ctx context.Context, r agentapi.AddRequest) error {
	cause := context.Cause(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.CallTimeout)
	defer cancel()
	err := s.Backend.Del(ctx, agentapi.DelRequest{
		Attachment: r.Attachment, NetNS: r.NetNS, Pod: r.Pod, Network: r.Network, Chained: r.Chained,
	})
	if err != nil {
		return fmt.Errorf("undo the ADD (%w): %w; the runtime's DEL repeats the undo", cause, err)
	}
	return fmt.Errorf("the ADD was undone: %w", cause)
}

// del goes on when the plugin disconnects: the runtime may never repeat the call.
func (s *Server) del(ctx context.Context, r agentapi.DelRequest) (nothing, error) {
	return nothing{}, s.inLane(context.WithoutCancel(ctx), r.Attachment, insists, s.CallTimeout, func(ctx context.Context) error {
		if err := s.Backend.Del(ctx, r); err != nil || r.Chained {
			return describe(ctx, err)
		}
		// This call has done the work of a spooled DEL. A chained DEL frees nothing.
		if err := s.Spool.Remove(r.Attachment); err != nil {
			s.Log.Error(err, "cannot remove a spooled DEL that is done; it will be repeated",
				"container", r.ContainerID, "interface", r.Interface)
		}
		return nil
	})
}

func (s *Server) check(ctx context.Context, r agentapi.CheckRequest) (nothing, error) {
	return nothing{}, s.inLane(ctx, r.Attachment, yields, s.CallTimeout, func(ctx context.Context) error {
		return describe(ctx, s.Backend.Check(ctx, r))
	})
}

// gc takes no lane: the CNI specification forbids other calls during a GC.
func (s *Server) gc(ctx context.Context, r agentapi.GCRequest) (nothing, error) {
	ctx, cancel := context.WithTimeout(ctx, s.CallTimeout)
	defer cancel()
	if r.Valid == nil {
		return nothing{}, fmt.Errorf("GC of network %s: %w", r.Network, errNoList)
	}
	return nothing{}, describe(ctx, s.Backend.GC(ctx, r))
}

func (s *Server) status(ctx context.Context, _ nothing) (nothing, error) {
	ctx, cancel := context.WithTimeout(ctx, s.CallTimeout)
	defer cancel()
	return nothing{}, describe(ctx, s.Backend.Status(ctx))
}

// describe adds the cause of the end of ctx, if it has ended. The error may not contain the cause.
func describe(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}
