// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/fakenode"
)

func TestNothingIsProbedInstalledOrAnsweredBeforeTheGuardEnforces(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	late := lateGuard{r.Guards.Kernel, make(chan struct{})}
	r.Guards.Kernel = late
	answered := make(chan error, 1)
	web := r.Pod("web", "u1")
	go func() {
		_, err := r.Add(t.Context(), web)
		answered <- err
	}()
	r.Eventually("the lease is created meanwhile", func() bool { return slices.Contains(r.Names(), "10.0.0.2 Bound") })
	if _, installed, _ := r.Kernel.Lease(fakenode.Key("10.0.0.2")); installed || r.Wire.Took("probe 10.0.0.2") || len(answered) > 0 {
		t.Error("the ADD went on without its guard")
	}
	close(late.enforce)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestAnInterfaceThatGoesDuringItsADDLeavesNothing(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	r.Kernel.Unplug(web.NetNS, web.Interface)
	if _, err := r.Add(t.Context(), web); !errors.Is(err, bpf.ErrNoDevice) {
		t.Errorf("got %v", err)
	}
	r.Want()
	if left := r.Journal.All(); len(left) > 0 {
		t.Errorf("journal %v", left)
	}
}

func TestNothingIsWrittenForAnInterfaceWhoseSegmentCannotBeOpened(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.OpenSegment = func(int) (holder.Segment, error) { return nil, bpf.ErrNoDevice }
	if _, err := r.Add(t.Context(), r.Pod("web", "u1")); !errors.Is(err, bpf.ErrNoDevice) || !strings.Contains(err.Error(), "eth1") {
		t.Errorf("got %v", err)
	}
	if n := r.API.Calls["create"]; n > 0 {
		t.Errorf("%d leases were created", n)
	}
	if left := r.Journal.All(); len(left) > 0 {
		t.Errorf("journal %v", left)
	}
}

func TestAnADDFailsWhoseObserverCannotBePutBack(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.Wire.ObserveFails = bpf.ErrNoDevice
	if _, err := r.Add(t.Context(), r.Pod("web", "u1")); !errors.Is(err, bpf.ErrNoDevice) {
		t.Errorf("got %v", err)
	}
	if len(r.Wire.Did) > 0 {
		t.Errorf("unobserved: %v", r.Wire.Did)
	}
	r.Want()
	if left := r.Journal.All(); len(left) > 0 {
		t.Errorf("journal %v", left)
	}
}

// lateGuard keeps a guard from enforcing until it is let go.
type lateGuard struct {
	guards.Kernel
	enforce chan struct{}
}

func (k lateGuard) StageGuard(g bpf.Guard) error {
	<-k.enforce
	return k.Kernel.StageGuard(g)
}
