// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/internal/diagnosis"
	"github.com/fenceline/fenceline/internal/version"
)

// askedAtOnce bounds the questions that are on the wire at the same time.
const askedAtOnce = 8

// diagnosisNode is the node of an agent.
type diagnosisNode struct {
	Name string
	// Ready returns the reason for which ADD would fail for every pod, or nil.
	Ready func(context.Context) error
	// HasTCX reports whether guards are in tcx.
	HasTCX   func() bool
	Segments *segment.Segments
	// Hazards describes what else works on the frames of a parent and needs a change.
	Hazards func(parent string) []string
	// Misplaced returns the pods that a new ADD would not put where they run, and Named the interfaces
	// that pools and settings name.
	Misplaced func() []diagnosis.Misplaced
	Named     func() []diagnosis.Named
	// OthersShare reports whether another node shares the segments.
	OthersShare func() bool
	// Index finds an interface of the node by one of its names.
	Index func(name string) (index int, exists bool, err error)
	// OfNode reports whether the node has an address: a link-local one counts only on the parent.
	OfNode func(parent int, addr netip.Addr) (bool, error)
	// ForwardingOff has the families that the node does not forward.
	ForwardingOff func() map[string]error
	// Configuration returns the network configuration that the runtime uses. Own is the agent's own, or empty.
	Configuration func() (string, error)
	Own           string
	Clock         clock.PassiveClock
}

// Diagnose returns the state of the node, with the answers to the questions.
func (d *diagnosisNode) Diagnose(ctx context.Context, r diagnosis.Request) (*diagnosis.Report, error) {
	if len(r.Questions) > diagnosis.MaxQuestions {
		return nil, refusal.New(refusal.InvalidRequest, "%d questions are more than %d", len(r.Questions), diagnosis.MaxQuestions)
	}
	report := &diagnosis.Report{
		Node: d.Name, Version: version.String(), Time: d.Clock.Now(), Kernel: KernelRelease(), TCX: d.HasTCX(),
		OwnConfiguration: d.Own, ForwardingOff: slices.Sorted(maps.Keys(d.ForwardingOff())),
	}
	if err := d.Ready(ctx); err != nil {
		report.NotReady = err.Error()
	}
	report.Configuration, _ = d.Configuration() // empty without one
	report.Answers = d.ask(ctx, r.Questions)    // before the parents: it opens their segments
	report.Parents, report.Misplaced, report.Named = d.parents(), d.Misplaced(), d.Named()
	return report, nil
}

func (d *diagnosisNode) parents() []diagnosis.Parent {
	parents := []diagnosis.Parent{}
	for _, s := range d.Segments.All() {
		p := diagnosis.Parent{Name: s.Name(), Hazards: d.Hazards(s.Name())}
		if i, err := net.InterfaceByName(p.Name); err == nil {
			p.MAC = i.HardwareAddr.String()
		}
		if h, err := s.Hearing(); err == nil {
			p.Carrier, p.Observed, p.Deaf, p.Mute = h.Carrier, h.Observed, h.Deaf(d.OthersShare()), h.Mute
		}
		parents = append(parents, p)
	}
	return parents
}

func (d *diagnosisNode) ask(ctx context.Context, questions []diagnosis.Question) []diagnosis.Answer {
	answers := make([]diagnosis.Answer, len(questions))
	var group errgroup.Group
	group.SetLimit(askedAtOnce)
	for i, q := range questions {
		group.Go(func() error {
			answers[i] = d.askOne(ctx, q)
			return nil
		})
	}
	_ = group.Wait() // each answer has its own error
	return answers
}

func (d *diagnosisNode) askOne(ctx context.Context, q diagnosis.Question) diagnosis.Answer {
	a := diagnosis.Answer{Question: q}
	if err := d.answer(ctx, &a); err != nil {
		a.Error = err.Error()
	}
	return a
}

// answer answers a question: by the node's own addresses, or else by the wire.
func (d *diagnosisNode) answer(ctx context.Context, a *diagnosis.Answer) error {
	index, exists, err := d.Index(a.Parent)
	if err != nil || !exists {
		return fmt.Errorf("ask for %s on parent %s: %w", a.Address, a.Parent, cmp.Or(err, errors.New("the node has no such interface")))
	}
	if a.OfNode, err = d.OfNode(index, a.Address); a.OfNode || err != nil {
		return err
	}
	s, err := d.Segments.Open(index)
	if err != nil {
		return err
	}
	reply, err := s.Ask(ctx, a.Address)
	if err == nil && reply.Answered {
		a.MAC = reply.MAC.String()
	}
	return err
}

// KernelRelease returns the release of the running kernel, or nothing if it does not say.
func KernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
