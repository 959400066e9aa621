// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/proof"
	"github.com/fenceline/fenceline/agent/release"
	"github.com/fenceline/fenceline/agent/waiting"
	"github.com/fenceline/fenceline/internal/owner"
)

// HostLinks makes the routing of pods' interfaces. *hostlink.Links implements it.
type HostLinks interface {
	release.HostLinks
	// Make makes or completes the routing that an entry records.
	Make(*attachment.Entry) error
	// Check names the first thing that is wrong with an entry's interface and its routing.
	Check(*attachment.Entry) error
}

// Options of Holders. All but Multus are required.
type Options struct {
	// Self is this node.
	Self proof.Node
	// DefaultSubnets are the default IPSubnets.
	DefaultSubnets ipam.ConfigPools
	// Patience is the time for which an ADD waits for an address of a full pool.
	Patience time.Duration

	// Cache reads from the agent's filtered caches, Reader past them.
	Cache, Reader client.Reader
	Attachments   *attachment.Table
	Leases        *lease.Store
	// Waiting has the ADDs that wait for an address of a full pool.
	Waiting  *waiting.Queue
	Acquirer *acquire.Acquirer
	Releaser *release.Releaser

	Guards *guards.Guards
	// GuardSources tells the kernel what the interface of an entry may send. WakeSources applies the pools
	// to all bound interfaces again, and reads their link-local addresses once the kernel has made them.
	GuardSources func(*attachment.Entry) error
	WakeSources  func()
	HostLinks    HostLinks
	// WakeVFs makes the next look at the VFs of pods come soon.
	WakeVFs func()
	// OpenSegment returns the segment of a parent, and opens it at first use. It does not check the
	// observer of an open segment; Observe does.
	OpenSegment func(parent int) (acquire.Segment, error)
	// FindLink finds a pod's interface in its network namespace.
	FindLink func(netns, ifname string) (pod.Interface, error)
	// FindUserVF finds a VF that a program drives itself. ok is false if the kernel drives the device.
	FindUserVF func(device string) (i pod.Interface, ok bool, err error)
	// ParentOf describes the parent with this ifindex.
	ParentOf func(index int) (ipam.Parent, error)

	// Services returns the service CIDRs; it waits until the agent has searched for them.
	Services func(context.Context) []netip.Prefix
	// Owners finds the application of a pod.
	Owners owner.Asker
	// Multus reads the networks that Multus gives to pods of this node. If nil, there are none.
	Multus func() (ipam.Multus, error)
	// PassesPorts reports whether the runtime passes the hostPorts of pods to a plugin of their first
	// interface. If that cannot be known, it is true.
	PassesPorts func() (bool, error)

	// Outage returns since when the API server has not answered; away is false if it has.
	Outage func() (since time.Time, away bool)
	Events events.EventRecorder
	// Step counts the time of a step of an ADD.
	Step  func(step string, took time.Duration)
	Log   logr.Logger
	Clock clock.Clock
	// Background outlives a call; the steps that follow an answer run in it.
	Background context.Context
}

// Holders are the pod interfaces of this node. Its methods may be called concurrently.
type Holders struct {
	Options
	After *After

	ignored ignored
}

// New returns the Holders of the journal. An undo and the steps after an answer end with Background.
func New(o Options) *Holders { return &Holders{Options: o, After: newAfter(o)} }

// Fenced handles a newer claim for an address held on a parent here: recovery reads the lease.
func (h *Holders) Fenced(parent int, addr netip.Addr) {
	if e, _, ok := h.Attachments.Holder(parent, addr); ok {
		h.Attachments.Pending.Add(e.Attachment())
		// The node must reach the new holder by the underlay.
		h.HostLinks.Wake(e.Attachment())
		h.WakeVFs()
	}
}
