// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package soak

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/test/capture"
)

// duplicates returns the frames by which a pod spoke for an address while it was
// another pod's.
func (s *soak) duplicates() []string {
	frames, err := s.Frames.Stop()
	if err != nil {
		s.t.Error(err)
	}
	pods := map[string]string{} // MAC to container
	for _, box := range s.lives.all {
		pods[box.MAC.String()] = box.ContainerID
	}
	var found []string
	for _, box := range s.lives.all {
		if box.Until.IsZero() {
			s.t.Errorf("%s still lives", box.ContainerID)
		}
		for _, f := range capture.SpokenFor(between(frames, box.Since, box.Until), box.Addr) {
			other := pods[f.Source.String()]
			if other != "" && other != box.ContainerID {
				found = append(found, fmt.Sprintf("%s was %s's, and %s spoke for it: %s", box.Addr, box.ContainerID, other, f))
			}
		}
	}
	return found
}

// between returns the frames of a time; frames come in the order of time.
func between(frames []capture.Frame, since, until time.Time) []capture.Frame {
	at := func(t time.Time) int {
		i, _ := slices.BinarySearchFunc(frames, t, func(f capture.Frame, t time.Time) int { return f.Time.Compare(t) })
		return i
	}
	from, to := at(since), at(until)
	return frames[from:max(from, to)]
}

// leaks waits until everything is given back, and returns what is not.
func (s *soak) leaks() []string {
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		left := s.left()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		<-tick.C
	}
}

// left are leases, entries, spooled calls, guards and namespaces of pods that have ended.
func (s *soak) left() []string {
	var left []string
	if err := s.LeasesAreLiving(s.ctx); err != nil {
		left = strings.Split(err.Error(), "\n")
	}
	for _, n := range s.Nodes {
		guards, err := n.Guards()
		if err != nil || len(guards) > 0 {
			left = append(left, fmt.Sprintf("%s keeps the guards %v (%v)", n.Name, guards, err))
		}
		visits, err := n.Visits()
		if err != nil || len(visits) > 0 {
			left = append(left, fmt.Sprintf("threads of the agent of %s stay in %v (%v)", n.Name, visits, err))
		}
	}
	return left
}
