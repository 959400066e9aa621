// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package main

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/test/network"
)

// brain stands for the agent's brain, and is the one fake here. It has two
// addresses and remembers who holds them; how the real one finds a free address
// and fences is tested with the API server and the BPF programs elsewhere. What
// it sees of the node it sees as the real one does, by package pod.
type brain struct {
	node *network.Namespace

	mu    sync.Mutex
	held  map[agentapi.Attachment]pod.Interface
	seen  []string
	gc    agentapi.GCRequest
	guard []agentapi.ConfiguredAddress

	// hold makes Add wait for the end of its context.
	hold  bool
	begun chan struct{}
	ended chan error
}

func newBrain(node *network.Namespace) *brain {
	return &brain{node: node, held: map[agentapi.Attachment]pod.Interface{}, begun: make(chan struct{}, 8), ended: make(chan error, 8)}
}

func (b *brain) Add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
	if b.hold {
		b.begun <- struct{}{}
		<-ctx.Done()
		b.ended <- context.Cause(ctx)
		return nil, ctx.Err()
	}
	var link pod.Interface
	err := b.node.Do(func() error {
		links, err := pod.NewFinder()
		if err != nil {
			return err
		}
		link, err = links.Find(r.NetNS, r.Interface)
		return errors.Join(err, links.Close())
	})
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, "ADD")
	if r.Chained {
		b.guard = r.Configured
		return &agentapi.AddResponse{}, nil
	}
	b.held[r.Attachment] = link
	return &agentapi.AddResponse{
		IPs: []agentapi.IP{
			{Address: netip.MustParsePrefix("192.0.2.7/24"), Gateway: netip.MustParseAddr("192.0.2.1")},
			{Address: netip.MustParsePrefix("2001:db8::7/64"), Gateway: netip.MustParseAddr("2001:db8::1")},
		},
		Routes: []agentapi.Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0")},
			{Dst: netip.MustParsePrefix("198.51.100.0/24"), GW: netip.MustParseAddr("192.0.2.254")},
			{Dst: netip.MustParsePrefix("::/0")},
		},
	}, nil
}

func (b *brain) Answered(agentapi.Attachment) {}

func (b *brain) Del(_ context.Context, r agentapi.DelRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, "DEL")
	delete(b.held, r.Attachment)
	return nil
}

func (b *brain) Check(_ context.Context, r agentapi.CheckRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, "CHECK")
	if _, ok := b.held[r.Attachment]; !ok || len(r.Configured) != 2 {
		return agentapi.Errorf(agentapi.CodeNotHeld, "%s holds nothing of %v", r.ContainerID, r.Configured)
	}
	return nil
}

func (b *brain) GC(_ context.Context, r agentapi.GCRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, "GC")
	b.gc = r
	for a := range b.held {
		if !slices.Contains(r.Valid, a) {
			delete(b.held, a)
		}
	}
	return nil
}

func (b *brain) Diagnose(context.Context, diagnosis.Request) (*diagnosis.Report, error) {
	return &diagnosis.Report{}, nil
}

func (b *brain) Status(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, "STATUS")
	return nil
}

// holds lists the containers that hold addresses.
func (b *brain) holds() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	for a := range b.held {
		ids = append(ids, a.ContainerID)
	}
	return ids
}

// calls returns the verbs of the calls since it was last asked.
func (b *brain) calls() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := b.seen
	b.seen = nil
	return seen
}
