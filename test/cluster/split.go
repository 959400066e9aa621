// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
)

// SplitUnderlay stops all frames between nodes: each node is alone on the underlay with the foreign
// hosts, and keeps its carrier. The capture still sees all frames that nodes send.
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
