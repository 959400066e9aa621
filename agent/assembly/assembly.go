// SPDX-License-Identifier: Apache-2.0

// Package assembly makes the parts of an agent that give addresses to pods and take them back, and
// connects them. The caller provides everything that has effects.
package assembly

import (
	"context"
	"net/netip"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/node"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/pod/vf"
	"github.com/fenceline/fenceline/agent/recovery"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/waiting"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// Kernel is the part of *bpf.Kernel that the parts need.
type Kernel interface {
	guards.Kernel
	// Revision returns the newest revision of the API server's store that this node has known since
	// its boot.
	Revision() (uint64, error)
}

// Follower reports the leases of a pool until the watch or ctx ends. waiting.Leases implements it.
type Follower interface {
	Follow(ctx context.Context, pool string, n waiting.News) error
}

// Metrics counts what the parts do. Its methods may be called concurrently.
type Metrics interface {
	node.Metrics
	guards.Metrics
	waiting.Metrics
}

// Options of the parts. All but CountError and UserVFs are required.
type Options struct {
	// Holders are the options of the holders. Hold sets Metrics, Clock and the parts among them.
	Holders node.Options
	// Client writes leases and pods.
	Client client.Client
	// Kernel has the guards.
	Kernel Kernel
	// HasDevice reports whether a network namespace has an interface of a VF.
	HasDevice func(netns, device string) (bool, error)
	// Places are the interfaces in the network namespaces of this node.
	Places func() ([]pod.Place, error)
	// UserVFs are the VFs of this node that programs drive themselves; nil means none.
	UserVFs func() ([]vf.Function, error)
	// Follower reports released addresses to the ADDs that wait. Rand returns a number from 0 to 1.
	Follower Follower
	Rand     func() float64
	// Rotations has the address after which each pool's rotation continues.
	Rotations map[string]netip.Addr
	// LeaseClock is the clock of the times in leases. CountError counts each failed call to the API
	// server, by verb.
	LeaseClock clock.PassiveClock
	CountError func(verb string, err error)

	Metrics Metrics
	Clock   clock.WithDelayedExecution
}

// Upper are the parts of the caller that build on Parts, and on which the holders build.
type Upper struct {
	Warm      node.Warm
	HostLinks node.HostLinks
	// VFs may be nil.
	VFs node.VFs
	// Routing returns the routing of an entry's interface as it is in the pod.
	Routing func(*attachment.Entry) (*attachment.Routing, error)
}

// Parts are connected with each other.
type Parts struct {
	options   Options
	Leases    *lease.Store
	Allocator *allocate.Allocator
	Foreign   *segment.ForeignHosts
	Guards    *guards.Guards
	Waiting   *waiting.Queue
	// Hold makes the others.
	Holders  *holder.Holders
	Recovery *recovery.Worker
}

// New makes the parts that do not depend on the holders. The waits for an address end with ctx.
func New(ctx context.Context, o Options) *Parts {
	h := o.Holders
	p := &Parts{options: o, Leases: lease.NewStore(lease.Options{
		Client: o.Client, Reader: h.Reader, Node: h.Node, Session: h.Session, Clock: o.LeaseClock, CountError: o.CountError,
	})}
	p.Allocator = allocate.New(allocate.Options{Leases: p.Leases, Clock: o.Clock, Last: o.Rotations})
	p.Foreign = &segment.ForeignHosts{Recorded: p.Leases.ConflictsWith, Clock: o.Clock}
	p.Guards = guards.New(guards.Options{
		Session: h.Session, Cluster: h.Cluster, Kernel: o.Kernel, Journal: h.Journal,
		TryLock: h.Journal.Calls.TryLock, HasDevice: o.HasDevice, Events: h.Events, Metrics: o.Metrics, Log: h.Log, Clock: o.Clock,
	})
	p.Waiting = waiting.New(waiting.Options{
		Leases: o.Follower, Rand: o.Rand, Metrics: o.Metrics, Clock: o.Clock, Log: h.Log, Background: ctx,
	})
	return p
}

// Hold makes the holders and the recovery. The undo of an ADD and the steps after an answer end with ctx.
// The caller restores the state of the last run: Recovery.Restore.
func (p *Parts) Hold(ctx context.Context, u Upper) {
	o, h := p.options, p.options.Holders
	h.Leases, h.Allocator, h.Foreign, h.Guards, h.Waiting = p.Leases, p.Allocator, p.Foreign, p.Guards, p.Waiting
	h.Warm, h.HostLinks, h.VFs = u.Warm, u.HostLinks, u.VFs
	h.Metrics, h.Clock = o.Metrics, o.Clock
	if u.VFs != nil {
		p.Guards.SwitchOff = u.VFs.SwitchOff
	}
	p.Holders = holder.New(ctx, h)
	p.Guards.Recheck = func(a agentapi.Attachment) { h.Journal.Pending.Add(a) }
	p.Recovery = recovery.New(recovery.Options{
		Holders: p.Holders, Client: o.Client, Leases: p.Leases,
		Revision: o.Kernel.Revision, Places: o.Places, UserVFs: o.UserVFs, Routing: u.Routing,
	})
}
