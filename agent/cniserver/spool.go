package cniserver

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/cni/spool"
)

// spoolWorkers bounds how many spooled calls run at once, so that an agent that
// returns after a long absence does not flood the API server.
const spoolWorkers = 4

// watchSpool carries out spooled calls until ctx ends: those that are there
// now, new ones when they appear, and periodically those that failed.
func (s *Server) watchSpool(ctx context.Context) error {
	if err := os.MkdirAll(string(s.spool), 0o700); err != nil {
		return fmt.Errorf("make the spool: %w", err)
	}
	if err := s.spool.Sweep(s.clock.Now()); err != nil {
		s.log.Error(err, "what killed plugins left in the spool stays")
	}
	w, err := s.watch(string(s.spool))
	if err == nil {
		defer w.Close()
	} else {
		// As on a node that is out of inotify instances. The periodic look has to do:
		// without this agent nobody would carry anything out.
		s.log.Error(err, "spooled DEL calls are found by a periodic look only")
		w = &fsnotify.Watcher{} // it tells of nothing
	}
	tick := s.clock.NewTicker(s.spoolPeriod)
	defer tick.Stop()
	// The watch is on before the first look, so that no file falls between them.
	s.drain(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.Events:
			// Our own removals are events too.
			if e.Has(fsnotify.Create) {
				s.drain(ctx)
			}
		case err := <-w.Errors:
			// The periodic look finds what an overflowing queue lost.
			s.log.Error(err, "watch the spool")
		case <-tick.C():
			s.drain(ctx)
		}
	}
}

// watchDir tells what happens in a directory.
func watchDir(dir string) (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	if err := w.Add(dir); err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, errors.Join(err, w.Close()))
	}
	return w, nil
}

// drain carries out every call that is in the spool now.
func (s *Server) drain(ctx context.Context) {
	waiting, err := s.spool.List()
	if err != nil {
		s.log.Error(err, "spooled DEL calls wait")
		return
	}
	var g errgroup.Group
	g.SetLimit(spoolWorkers)
	for _, a := range waiting {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if err := s.carryOutInLane(ctx, a); err != nil {
				s.log.Error(err, "a spooled DEL waits for another try", "container", a.ContainerID, "interface", a.Interface)
			}
			return nil
		})
	}
	_ = g.Wait()
}

// carryOutInLane waits for its turn as a call that yields: a DEL of the runtime
// that arrives meanwhile does the same work.
func (s *Server) carryOutInLane(ctx context.Context, a agentapi.Attachment) error {
	ctx, cancel := context.WithTimeout(ctx, s.callTimeout)
	defer cancel()
	ctx, leave, err := s.lanes.enter(ctx, a, yields)
	if err != nil {
		return fmt.Errorf("wait for an earlier call: %w", err)
	}
	defer leave()
	return s.carryOut(ctx, a)
}

// carryOut does the spooled DEL of the attachment, if there is one, and removes
// it on success. The caller is in the lane of the attachment. Like any DEL it
// ends by its deadline only.
func (s *Server) carryOut(ctx context.Context, a agentapi.Attachment) error {
	r, ok, err := s.spool.Get(a)
	switch {
	case errors.Is(err, spool.ErrMalformed):
		// The name tells the attachment, and the attachment is all that a DEL needs.
		s.log.Error(err, "carried out by its name alone")
		r = agentapi.DelRequest{Attachment: a}
	case err != nil:
		return err
	case !ok:
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.callTimeout)
	defer cancel()
	if err := s.backend.Del(ctx, r); err != nil {
		return fmt.Errorf("carry out a spooled DEL: %w", err)
	}
	s.log.V(1).Info("carried out a spooled DEL", "container", a.ContainerID, "interface", a.Interface,
		"namespace", r.Pod.Namespace, "pod", r.Pod.Name)
	return s.spool.Remove(a)
}
