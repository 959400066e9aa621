// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/test/capture"
)

// SpeakersAreHolders returns an error if a frame so far spoke for an address that belonged to
// another sandbox at that time.
func (c *Cluster) SpeakersAreHolders() error {
	frames := c.Frames.Frames()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.had) == 0 {
		return errors.New("no sandbox has had an address, so nothing was judged")
	}
	return speakersAreHolders(frames, c.had)
}

func speakersAreHolders(frames []capture.Frame, had []*Sandbox) error {
	var errs []error
	for _, s := range had {
		for _, f := range capture.SpokenFor(capture.After(frames, s.Since), s.Addr) {
			if f.Source.String() != s.MAC.String() && (s.Until.IsZero() || f.Time.Before(s.Until)) {
				errs = append(errs, fmt.Errorf("%s was that of %s with %s, and was spoken for by %s", s.Addr, s.ContainerID, s.MAC, f))
			}
		}
	}
	return errors.Join(errs...)
}
