// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/controlplane"
	"github.com/fenceline/fenceline/test/process"
)

// StartController runs the controller until the test ends. Its extra grace is 1 s: after that time
// it takes an address, and no longer waits for the node's own DEL.
func (c *Cluster) StartController() {
	c.t.Helper()
	c.check(c.startController())
	c.t.Cleanup(func() {
		c.check(c.controller.Kill(context.Background()))
		c.closeLog("the controller", c.controllerLog())
	})
}

// StartChartsController is StartController with the rights that the chart gives.
func (c *Cluster) StartChartsController() {
	c.t.Helper()
	c.controllerRights = check.Value(c.Server.ControllerRights(c.t.Context(), System))(c.t)
	c.StartController()
}

func (c *Cluster) startController() error {
	if c.endHints != nil {
		c.endHints()
	}
	access := filepath.Join(c.bin, "controller.kubeconfig")
	if err := controlplane.WriteKubeconfig(cmp.Or(c.controllerRights, c.Server.Admin()), access); err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), filepath.Join(c.bin, "controller"), "--namespace", System, "--leader-elect=false",
		"--metrics-address", cmp.Or(c.ControllerMetrics, "0"), "--health-address", "0", "--extra-grace", "1s")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+access)
	var err error
	c.controller, err = process.Start("controller", cmd, c.controllerLog())
	return err
}

// Supervise starts a node's agent again whenever it ends, until stop is called.
func (c *Cluster) Supervise(n *Node) (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan error, 1)
	go func() { done <- n.supervise(ctx) }()
	return func() {
		cancel()
		c.check(<-done)
	}
}

func (n *Node) supervise(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := n.StartAgent(); err != nil {
				return err
			}
		}
	}
}

// KillController ends the controller as kill -9 does.
func (c *Cluster) KillController() error { return c.controller.Kill(context.Background()) }

// Revive starts the agents and the controller that have ended, as kubelets do.
func (c *Cluster) Revive() error {
	for _, n := range c.Nodes {
		if err := n.StartAgent(); err != nil {
			return err
		}
	}
	if c.controller.PID == 0 || c.controller.Alive() {
		return nil
	}
	return c.startController()
}

func (c *Cluster) controllerLog() string { return filepath.Join(c.bin, "controller.log") }
