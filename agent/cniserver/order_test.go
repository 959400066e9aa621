// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

// hang is an Add that says when it has begun and returns when its context ends.
type hang struct {
	begun chan string
	ended chan error
}

func newHang() *hang { return &hang{begun: make(chan string, 16), ended: make(chan error, 16)} }

func (h *hang) add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
	h.begun <- r.ContainerID
	<-ctx.Done()
	h.ended <- context.Cause(ctx)
	return nil, ctx.Err()
}

func TestAPluginThatLeavesEndsItsADD(t *testing.T) {
	h := newHang()
	r := start(t, &brain{add: h.add})
	ctx, leave := context.WithCancel(t.Context())
	go func() { _, _ = r.Add(ctx, addOf("abc")) }()
	check.Receive(t, patience, "ADD at the backend", h.begun)
	leave()
	check.Is(t, check.Receive(t, patience, "end of the ADD", h.ended), context.Canceled, "the ADD ended by")
}

func TestAnADDThatSucceedsForNobodyIsUndone(t *testing.T) {
	begun := make(chan struct{})
	r := start(t, &brain{add: func(ctx context.Context, _ agentapi.AddRequest) (*agentapi.AddResponse, error) {
		close(begun)
		<-ctx.Done()
		return &agentapi.AddResponse{}, nil
	}})
	ctx, leave := context.WithCancel(t.Context())
	go func() { _, _ = r.Add(ctx, addOf("abc")) }()
	check.Receive(t, patience, "ADD at the backend", begun)
	leave()
	check.Becomes(t, patience, "the ADD is undone by a DEL", func() bool { return slices.Equal(r.brain.deleted(), []string{"abc"}) })
}

func TestADELGoesOnWhenThePluginLeaves(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	r := start(t, &brain{del: func(ctx context.Context, _ agentapi.DelRequest) error {
		close(begun)
		<-proceed
		return ctx.Err()
	}})
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- r.Del(ctx, delOf("abc")) }()
	check.Receive(t, patience, "DEL at the backend", begun)
	leave()
	check.That(t, check.Receive(t, patience, "return of the client", left) != nil, "the client had an answer before the DEL was done")
	close(proceed)
	check.Becomes(t, patience, "the DEL succeeded", func() bool { return len(r.brain.deleted()) == 1 })
}

func TestADELEndsTheADDThatIsInItsWay(t *testing.T) {
	h := newHang()
	r := start(t, &brain{add: h.add})
	answered := make(chan error, 1)
	go func() {
		_, err := r.Add(t.Context(), addOf("abc"))
		answered <- err
	}()
	check.Receive(t, patience, "ADD at the backend", h.begun)
	check.OK(t, r.Del(t.Context(), delOf("abc")))
	check.Is(t, check.Receive(t, patience, "end of the ADD", h.ended), errSuperseded, "the ADD ended by")
	err := check.Receive(t, patience, "answer to the ADD", answered)
	e, ok := errors.AsType[*agentapi.Error](err)
	check.That(t, ok && e.Code == agentapi.CodeTryAgainLater, "the ADD was answered %v, want code 11", err)
}

func TestCallsForOneAttachmentRunOneByOne(t *testing.T) {
	begun, proceed := make(chan string, 4), make(chan struct{})
	r := start(t, &brain{check: func(_ context.Context, r agentapi.CheckRequest) error {
		begun <- r.ContainerID
		<-proceed
		return nil
	}})
	done := make(chan error, 3)
	for _, id := range []string{"one", "two", "one"} {
		go func() { done <- r.Check(t.Context(), agentapi.CheckRequest{Attachment: attachment(id)}) }()
	}
	first := []string{check.Receive(t, patience, "first call", begun), check.Receive(t, patience, "second call", begun)}
	slices.Sort(first)
	check.Must(t, slices.Equal(first, []string{"one", "two"}), "%v run at the same time", first)
	select {
	case id := <-begun:
		t.Fatalf("a second call for %s runs", id)
	case <-time.After(50 * time.Millisecond): // the absence of a call has no event to wait for
	}
	close(proceed)
	for range 3 {
		check.Is(t, check.Receive(t, patience, "answer", done), nil, "got")
	}
}

func TestLanesLeaveNothingBehind(t *testing.T) {
	l := newLanes()
	_, leave, err := l.enter(t.Context(), attachment("abc"), yields)
	check.OK(t, err)
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = l.enter(impatient, attachment("abc"), insists)
	check.That(t, errors.Is(err, context.Canceled), "entered an occupied lane: %v", err)
	leave()
	check.That(t, len(l.occupied) == 0, "%d lanes are left", len(l.occupied))
}
