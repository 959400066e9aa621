// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// callEvery is the interval of the TCP connections of a client.
	callEvery = 25 * time.Millisecond
	// callLimit is longer than a connection takes on a busy machine, and equals the time after which
	// TCP repeats a SYN.
	callLimit = time.Second
)

// answer is the result of one TCP connection.
type answer struct {
	// begun is the time of the connect, at the time of its result.
	begun, at time.Time
	// pod is the name in the answer. It is empty if there was none.
	pod string
	err error
}

// caller connects to an address again and again, each time by a new connection, and records who
// answers.
type caller struct {
	host *cluster.Host
	addr netip.Addr
	done chan struct{}

	mu      sync.Mutex
	answers []answer
}

// call starts a steady client of TCP connections.
func (a *act) call(host *cluster.Host, addr netip.Addr) *caller {
	ctx, stop := context.WithCancel(context.Background())
	c := &caller{host: host, addr: addr, done: make(chan struct{})}
	go c.run(ctx)
	a.after("stop the client", func(context.Context) { stop(); <-c.done })
	return c
}

func (c *caller) run(ctx context.Context) {
	defer close(c.done)
	tick := time.NewTicker(callEvery)
	defer tick.Stop()
	for {
		begun := time.Now()
		pod, err := greeting(ctx, c.host, c.addr)
		if ctx.Err() != nil {
			return
		}
		c.add(answer{begun: begun, at: time.Now(), pod: pod, err: err})
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (c *caller) add(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, a)
}

// heard returns all answers up to now.
func (c *caller) heard() []answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.answers)
}

// waitFor waits until the pod has answered count times since then.
func (c *caller) waitFor(ctx context.Context, pod string, count int, since time.Time) {
	eventually(ctx, clientLimit, fmt.Sprintf("%d answers of pod %s for %s", count, pod, c.addr), func(context.Context) {
		got := 0
		answers := c.heard()
		for _, a := range answers {
			if a.pod == pod && !a.begun.Before(since) {
				got++
			}
		}
		if got >= count {
			return
		}
		last := "nobody has been asked"
		if len(answers) > 0 {
			a := answers[len(answers)-1]
			last = fmt.Sprintf("the last answer was by %q (%v)", a.pod, a.err)
		}
		fail("it gave %d; %s", got, last)
	})
}

// greeting connects to a pod and returns the name it says.
func greeting(ctx context.Context, host *cluster.Host, addr netip.Addr) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	conn, err := host.Dial(ctx, "tcp", netip.AddrPortFrom(addr, appPort).String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	name, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(name), err
}
