// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/cni/spool"
)

// spoolWorkers is the largest number of spooled calls that run at once. After a long outage the
// agent must not flood the API server.
const spoolWorkers = 4

// spoolPeriod is the time between two tries of a spooled call.
const spoolPeriod = 30 * time.Second

// watchSpool carries out spooled calls until ctx ends: the present ones, new ones when they appear,
// and failed ones again every spoolPeriod.
func (s *Server) watchSpool(ctx context.Context) error {
	if err := os.MkdirAll(string(s.Spool), 0o700); err != nil {
		s.Log.Error(err, "cannot create the spool; plugins try themselves")
	}
	if err := s.Spool.Sweep(s.Clock.Now()); err != nil {
		s.Log.Error(err, "cannot remove the unfinished files of killed plugins from the spool")
	}
	w, err := s.watch(string(s.Spool))
	if err == nil {
		defer w.Close()
	} else {
		// For example, the node is out of inotify instances. The agent must start in this case too:
		// the periodic look finds the calls.
		s.Log.Error(err, "cannot watch the spool; a periodic look finds spooled DEL calls", "period", spoolPeriod)
		w = &fsnotify.Watcher{} // it has no events
	}
	tick := s.Clock.NewTicker(spoolPeriod)
	defer tick.Stop()
	// The watch begins before the first look, so that no file is missed in between.
	s.drain(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.Events:
			// The server's own removals are events too.
			if e.Has(fsnotify.Create) {
				s.drain(ctx)
			}
		case err := <-w.Errors:
			// The queue of events may have overflowed. The periodic look finds the calls.
			s.Log.Error(err, "the watch of the spool may have lost events")
		case <-tick.C():
			s.drain(ctx)
		}
	}
}

// watchDir watches a directory.
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
	waiting, err := s.Spool.List()
	if err != nil {
		s.Log.Error(err, "cannot read the spool; spooled DEL calls wait")
		return
	}
	var g errgroup.Group
	g.SetLimit(spoolWorkers)
	for _, a := range waiting {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			// It yields to a DEL of the runtime, which does the same work.
			err := s.inLane(ctx, a, yields, s.CallTimeout, func(ctx context.Context) error { return s.carryOut(ctx, a) })
			if err != nil {
				s.Log.Error(err, "cannot carry out a spooled DEL; trying again",
					"container", a.ContainerID, "interface", a.Interface)
			}
			return nil
		})
	}
	_ = g.Wait()
}

// carryOut carries out the spooled DEL of the attachment, if there is one, and then removes it. The
// caller is in the lane of the attachment. Like any DEL it ends by its deadline only.
func (s *Server) carryOut(ctx context.Context, a agentapi.Attachment) error {
	r, ok, err := s.Spool.Get(a)
	switch {
	case errors.Is(err, spool.ErrMalformed):
		// The file name contains the attachment, and a DEL needs nothing else.
		s.Log.Error(err, "a spooled DEL is carried out by its file name")
		r = agentapi.DelRequest{Attachment: a}
	case err != nil:
		return err
	case !ok:
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.CallTimeout)
	defer cancel()
	if err := s.Backend.Del(ctx, r); err != nil {
		return fmt.Errorf("carry out the spooled DEL of %s in container %s: %w", a.Interface, a.ContainerID, err)
	}
	s.Log.V(1).Info("carried out a spooled DEL", "container", a.ContainerID, "interface", a.Interface,
		"namespace", r.Pod.Namespace, "pod", r.Pod.Name)
	return s.Spool.Remove(a)
}
