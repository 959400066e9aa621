// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"net"

	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/pod/vf"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// backend passes the calls of the plugin to the holders once the agent is ready.
type backend struct {
	*holder.Holders
	*diagnosisNode
	ready *Ready
	// unfit returns the reason for which an interface cannot be served.
	unfit func(netns, ifname string) error
	// bound is called when an ADD has bound an interface.
	bound func()
}

// Answered begins the steps that follow the answer of an ADD.
func (b *backend) Answered(of agentapi.Attachment) {
	b.After.Answered(of)
	b.bound()
}

// Status answers the runtime's question whether ADD can be served (CNI 1.1).
func (b *backend) Status(ctx context.Context) error {
	if err := b.ready.Serves(ctx); err != nil {
		return refusal.New(refusal.NotReady, "the agent cannot serve ADD: %w", err)
	}
	return nil
}

// Add refuses an ADD early if it would fail for every pod.
func (b *backend) Add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error) {
	if err := b.ready.Serves(ctx); err != nil {
		return nil, refusal.New(refusal.NotReady, "the agent cannot serve ADD yet: %w", err)
	}
	if err := b.unfit(r.NetNS, r.Interface); err != nil {
		return nil, err
	}
	return b.Holders.Add(ctx, r)
}

// findUserVF finds a VF that a program drives itself. Only its PF tells the MAC of such a VF.
func findUserVF(device string) (i pod.Interface, ok bool, err error) {
	driver := vf.UserDriver(vf.Sysfs, device)
	if driver == "" {
		return i, false, nil
	}
	f, err := vf.Find(vf.Sysfs, device)
	if errors.Is(err, vf.ErrNoVF) {
		return i, false, refusal.New(refusal.InvalidPod,
			"%w, and has the driver %s: no PF could switch it off, so its address could not be fenced; use a VF", err, driver)
	}
	if err != nil {
		return i, false, err
	}
	if f.Info.Mac == nil || bytes.Equal(f.Info.Mac, make(net.HardwareAddr, 6)) {
		return i, false, refusal.New(refusal.InvalidPod,
			"VF %s has the driver %s and no MAC at its PF %s, so its frames could not be told from those of others; set mac in the network of the plugin",
			device, driver, f.PF.Attrs().Name)
	}
	parent, err := f.Parent()
	if err != nil {
		return i, false, err
	}
	return pod.Interface{
		MAC: f.Info.Mac, Parent: pod.Parent{Index: parent.Index, Name: parent.Name}, Device: device, Unguarded: true,
	}, true, nil
}
