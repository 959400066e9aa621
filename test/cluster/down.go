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
	"github.com/fenceline/fenceline/test/must"
)

// Down ends the cluster with that prefix and removes its processes, namespaces, mounts, cgroups and
// files. It is no error if there is no such cluster.
func Down(ctx context.Context, prefix string) error {
	var c *Cluster
	if err := must.Try(func() { c = load(prefix); c.attach() }); errors.Is(err, ErrNotUp) {
		return nil
	} else if err != nil {
		return fmt.Errorf("cluster down: %w", err)
	}
	c.Options.Progress = io.Discard
	return c.Down(ctx)
}

// Down ends the cluster and removes its processes, namespaces, mounts, cgroups and files.
func (c *Cluster) Down(ctx context.Context) (err error) {
	defer must.CatchIn(&err, "cluster down")
	must.OK(c.stop(ctx))
	return os.RemoveAll(c.dir)
}

// attach finds the processes of a cluster that may be partly started or partly removed. Unlike Open,
// it does not need the namespaces of the cluster.
func (c *Cluster) attach() {
	c.controlPlane = must.Value(controlplane.Open(c.controlPlaneConfig()))
	for i, init := range c.state.Nodes {
		m := must.Value(machine.Open(c.nodeDir(i+1), init, c.machineProgram()))
		c.nodes = append(c.nodes, &Node{Machine: m, cluster: c, number: i + 1})
	}
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
