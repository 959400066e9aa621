// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/process"
)

// execLimit is how long a program may take to begin.
const execLimit = 20 * time.Second

// SetClock sets the clock of the node's agent, now and after each start, ahead of
// this machine's, or behind. The API server has the machine's.
func (n *Node) SetClock(ahead time.Duration) error {
	n.starting.Lock()
	defer n.starting.Unlock()
	n.clock = ahead
	return n.agent.ShiftClock(context.Background(), ahead)
}

// Clock is by how much the agent's clock is ahead of this machine's.
func (n *Node) Clock() time.Duration { return n.clock }

// SetControllerClock does the same with the controller that runs.
func (c *Cluster) SetControllerClock(ahead time.Duration) error {
	c.controllerClock = ahead
	return c.controller.ShiftClock(context.Background(), ahead)
}

// setClock sets the clock of a process once it is that program: what starts it
// in its namespace becomes it.
func setClock(p process.Process, program string, ahead time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), execLimit)
	defer cancel()
	err := await.Until(ctx, execLimit, time.Millisecond, program, func(context.Context) error {
		args, err := process.Arguments(p.PID)
		if err != nil {
			return await.Never(err)
		}
		if len(args) == 0 || args[0] != program {
			return fmt.Errorf("it still is %q", args)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("set the clock of %s: %w", p.Name, err)
	}
	return p.ShiftClock(ctx, ahead)
}
