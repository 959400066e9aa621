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

// SetClock sets the agent's clock ahead of this machine's, or behind if ahead is negative. It holds
// for later starts too. The API server keeps the machine's clock.
func (n *Node) SetClock(ahead time.Duration) error {
	n.starting.Lock()
	defer n.starting.Unlock()
	n.clock = ahead
	return n.agent.ShiftClock(context.Background(), ahead)
}

// Clock returns the lead of the agent's clock over this machine's.
func (n *Node) Clock() time.Duration { return n.clock }

// SetControllerClock sets the clock of the running controller in the same way.
func (c *Cluster) SetControllerClock(ahead time.Duration) error {
	c.controllerClock = ahead
	return c.controller.ShiftClock(context.Background(), ahead)
}

// setClock sets the clock of a process once it runs the program: the process starts as another
// program, which enters the namespace and then executes this one.
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
