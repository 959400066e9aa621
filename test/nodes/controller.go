package nodes

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/fenceline/fenceline/test/process"
)

// StartController runs the controller until the test ends. It is impatient: what
// is left to a node's own DEL it takes after a second.
func (c *Cluster) StartController() {
	c.t.Helper()
	c.check(c.startController())
	c.t.Cleanup(func() { c.check(c.controller.Kill(context.Background())) })
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.showLog("controller", c.controllerLog())
		}
	})
}

func (c *Cluster) startController() error {
	cmd := exec.CommandContext(context.Background(), filepath.Join(c.bin, "controller"), "--namespace", System, "--leader-elect=false",
		"--metrics-address", "0", "--health-address", "0", "--extra-grace", "1s")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Server.Kubeconfig())
	var err error
	c.controller, err = process.Start("controller", cmd, c.controllerLog())
	return err
}

// Revive starts what has ended by itself, as kubelets do.
func (c *Cluster) Revive() error {
	for _, n := range c.Nodes {
		if err := n.ReviveAgent(); err != nil {
			return err
		}
	}
	if c.controller.PID == 0 || c.controller.Alive() {
		return nil
	}
	return c.startController()
}

func (c *Cluster) controllerLog() string { return filepath.Join(c.bin, "controller.log") }
