// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/machine"
)

// Down ends the cluster with that prefix and removes its processes, namespaces, mounts, cgroups and
// files. It is no error if there is no such cluster.
func Down(ctx context.Context, prefix string) error {
	c, err := load(prefix)
	if errors.Is(err, ErrNotUp) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cluster down: %w", err)
	}
	c.Options.Progress = io.Discard
	if err := c.attach(); err != nil {
		return fmt.Errorf("cluster down: %w", err)
	}
	return c.Down(ctx)
}

// Down ends the cluster and removes its processes, namespaces, mounts, cgroups and files.
func (c *Cluster) Down(ctx context.Context) error {
	if err := c.stop(ctx); err != nil {
		return fmt.Errorf("cluster down: %w", err)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("cluster down: %w", err)
	}
	return nil
}

// attach finds the processes of a cluster that may be partly started or partly removed. Unlike Open,
// it does not need the namespaces of the cluster.
func (c *Cluster) attach() error {
	var err error
	if c.controlPlane, err = controlplane.Open(c.controlPlaneConfig()); err != nil {
		return err
	}
	for i, init := range c.state.Nodes {
		m, err := machine.Open(c.nodeDir(i+1), init, c.machineProgram())
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, &Node{Machine: m, cluster: c, number: i + 1})
	}
	return nil
}

// stop ends all processes of the cluster and removes its namespaces, mounts and cgroups. Files stay.
func (c *Cluster) stop(ctx context.Context) error {
	errs := []error{c.onEachNode(func(n *Node) error { return n.Machine.PowerOff(ctx) })}
	if c.controlPlane != nil {
		errs = append(errs, c.controlPlane.Stop(ctx))
	}
	if c.wires != nil {
		errs = append(errs, c.wires.sw.EndRecord())
	}
	errs = append(errs, cutWires(c.Options))
	return errors.Join(errs...)
}
