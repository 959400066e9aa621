// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// steadyEvery is the interval at which a steady connection sends.
	steadyEvery = 100 * time.Millisecond
	// steadyLimit is how long an echo may take. Meanwhile TCP sends again several times.
	steadyLimit = 5 * time.Second
)

// steady is a set of TCP connections to pods' echo servers, which stay open and in use.
type steady struct {
	ctx   context.Context // ends with the scenario
	group sync.WaitGroup
	count int
	// echoes counts the lines that came back.
	echoes atomic.Int64

	mu     sync.Mutex
	broken []error
}

// hold starts an empty set.
func (a *act) hold() *steady {
	ctx, stop := context.WithCancel(context.Background())
	s := &steady{ctx: ctx}
	a.after("close the steady connections", func(context.Context) { stop(); s.group.Wait() })
	return s
}

// open adds connections, once kube-proxy knows the pods behind a Service.
func (s *steady) open(ctx context.Context, count int, from place, to netip.AddrPort) {
	for range count {
		var conn net.Conn
		eventually(ctx, pathLimit, fmt.Sprintf("a connection from %s to %s", from.name, to), func(ctx context.Context) {
			conn = value(from.dial(ctx, "tcp", to))
		})
		s.count++
		s.group.Go(func() {
			defer conn.Close()
			if err := s.use(conn); err != nil && s.ctx.Err() == nil {
				s.breaks(fmt.Errorf("the connection from %s to %s: %w", from.name, to, err))
			}
		})
	}
}

// use sends lines and waits for the echo of each.
func (s *steady) use(conn net.Conn) error {
	lines := bufio.NewReader(conn)
	tick := time.NewTicker(steadyEvery)
	defer tick.Stop()
	if _, err := lines.ReadString('\n'); err != nil { // the greeting
		return err
	}
	for n := 0; ; n++ {
		sent := fmt.Sprintln("line", n)
		if err := conn.SetDeadline(time.Now().Add(steadyLimit)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte(sent)); err != nil {
			return err
		}
		got, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		if got != sent {
			return fmt.Errorf("%q came back for %q", got, sent)
		}
		s.echoes.Add(1)
		select {
		case <-s.ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (s *steady) breaks(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = append(s.broken, err)
}

// unbroken waits until so many more echoes have come back, and fails if a connection is broken.
func (s *steady) unbroken(ctx context.Context) {
	const rounds = 10
	goal := s.echoes.Load() + int64(rounds*s.count)
	eventually(ctx, clientLimit, fmt.Sprintf("%d more echoes", rounds*s.count), func(context.Context) {
		check(s.err())
		must(s.echoes.Load() >= goal, "%d are missing", goal-s.echoes.Load())
	})
	check(s.err())
}

func (s *steady) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.broken) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d connections are broken, the first one: %w", len(s.broken), s.count, s.broken[0])
}
