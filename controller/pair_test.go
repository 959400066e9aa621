// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"github.com/fenceline/fenceline/test/controlplane"
)

// pair is a leader and a controller that stands by. They are real processes that
// have no more rights than the chart gives.
type pair struct {
	world
	first, second *exec.Cmd
	// firstLeader is who first is in the leader's Lease.
	firstLeader string
}

// startPair starts both and returns once the first one leads.
func (w world) startPair(server *controlplane.Server) *pair {
	w.Helper()
	program := w.build()
	kubeconfig := w.kubeconfig(w.chartRights(server))
	p := &pair{world: w, first: w.start(program, kubeconfig)}
	w.eventually("a leader", func() (err error) { p.firstLeader, err = w.leader(); return err })
	p.second = w.start(program, kubeconfig)
	return p
}

// killLeader leaves the Lease as it is, so that the other one has to wait for it to run out.
func (p *pair) killLeader() {
	p.Helper()
	if err := p.first.Process.Kill(); err != nil {
		p.Fatal(err)
	}
	if err := p.first.Wait(); err == nil {
		p.Error("the leader ended by itself")
	}
}

// waitSuccessor waits until the other one leads.
func (p *pair) waitSuccessor() {
	p.Helper()
	p.eventually("another leader", func() error {
		now, err := p.leader()
		if err == nil && now == p.firstLeader {
			err = fmt.Errorf("it is still %s", now)
		}
		return err
	})
}

// endSuccessor ends it in an orderly way, which gives the Lease up, and looks
// whether either was refused anything.
func (p *pair) endSuccessor() {
	p.Helper()
	if err := p.second.Process.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
	if err := p.second.Wait(); err != nil {
		p.Errorf("the controller ended with %v", err)
	}
	for _, cmd := range []*exec.Cmd{p.first, p.second} {
		for line := range strings.Lines(cmd.Stderr.(*bytes.Buffer).String()) {
			if strings.Contains(line, "forbidden") {
				p.Errorf("the chart gives too few rights: %s", line)
			}
		}
	}
}
