package cluster

import (
	"context"
	"errors"
)

// SplitUnderlay keeps nodes from hearing each other: each is alone on the
// underlay with the foreign hosts, and its carrier stays. The capture still sees
// all they send.
func (c *Cluster) SplitUnderlay() error { return c.isolate(true) }

// JoinUnderlay undoes SplitUnderlay, SplitOff and LoseFrames.
func (c *Cluster) JoinUnderlay(ctx context.Context) error {
	return errors.Join(c.filter(ctx), c.isolate(false))
}

// isolate makes the ports of all nodes isolated ones: the bridge forwards
// nothing between two of these.
func (c *Cluster) isolate(isolated bool) error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, c.wires.sw.SetIsolated(underlayPort(n.Name()), isolated))
	}
	return errors.Join(errs...)
}
