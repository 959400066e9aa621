// SPDX-License-Identifier: Apache-2.0

package fakenode

import (
	"context"
	"time"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// NoHostLinks stands in for host links: the pods of this node have no network namespace.
type NoHostLinks struct{}

func (NoHostLinks) Make(*attachment.Entry) error   { return nil }
func (NoHostLinks) Check(*attachment.Entry) error  { return nil }
func (NoHostLinks) Remove(*attachment.Entry) error { return nil }
func (NoHostLinks) Wake(agentapi.Attachment)       {}

// NoVFs stands in for the virtual functions of a node that has none.
type NoVFs struct{}

func (NoVFs) SwitchOff(*attachment.Entry) error { return nil }
func (NoVFs) Release(*attachment.Entry) error   { return nil }
func (NoVFs) Wake()                             {}

// These types give the agent what the node has at that moment.
type (
	hostLinks struct{ r *Node }
	vfs       struct{ r *Node }
	sources   struct{ r *Node }
)

func (h hostLinks) Make(e *attachment.Entry) error   { return h.r.HostLinks.Make(e) }
func (h hostLinks) Check(e *attachment.Entry) error  { return h.r.HostLinks.Check(e) }
func (h hostLinks) Remove(e *attachment.Entry) error { return h.r.HostLinks.Remove(e) }
func (h hostLinks) Wake(a agentapi.Attachment)       { h.r.HostLinks.Wake(a) }

func (v vfs) SwitchOff(e *attachment.Entry) error { return v.r.VFs.SwitchOff(e) }
func (v vfs) Release(e *attachment.Entry) error   { return v.r.VFs.Release(e) }
func (v vfs) Wake()                               { v.r.VFs.Wake() }

func (sources) Wake() {}
func (s sources) Apply(_ context.Context, e *attachment.Entry) error {
	if s.r.GuardSources == nil {
		return nil
	}
	return s.r.GuardSources(e)
}

// noMetrics counts nothing.
type noMetrics struct{}

func (noMetrics) Conflict(string, segment.Source) {}
func (noMetrics) Verification(segment.Verdict)    {}
func (noMetrics) Renewal(segment.Verdict)         {}
func (noMetrics) PinFailed()                      {}
func (noMetrics) GuardRestored()                  {}
func (noMetrics) Waited(time.Duration, bool)      {}
