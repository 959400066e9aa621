// SPDX-License-Identifier: Apache-2.0

// Package assembly makes the parts of an agent that give addresses to pods and take them back, and
// connects them, from the ground up: no part gets a field later. The caller provides everything that
// has effects.
package assembly

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/pod/vf"
	"github.com/fenceline/fenceline/agent/proof"
	"github.com/fenceline/fenceline/agent/recovery"
	"github.com/fenceline/fenceline/agent/release"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/waiting"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// Metrics counts what the parts do. Its methods may be called concurrently.
type Metrics interface {
	acquire.Metrics
	guards.Metrics
	recovery.Metrics
	waiting.Metrics
	// Step counts the time of a step of an ADD.
	Step(step string, took time.Duration)
}

// GroundOptions are the options of a Ground. All but Known and CountError are required.
type GroundOptions struct {
	// Self is this node.
	Self proof.Node
	// Client reads and writes the API server's objects, Reader reads them past the caches.
	Client client.Client
	Reader client.Reader
	// Known is told the lease of each answer.
	Known *lease.View
	// Attachments has begun the session of Self.
	Attachments *attachment.Table
	// Kernel has the guards. Revision returns the newest revision of the API server's store that this node
	// has known since its boot.
	Kernel   guards.Kernel
	Revision func() (uint64, error)
	// HasDevice reports whether a network namespace has an interface of a VF.
	HasDevice func(netns, device string) (bool, error)
	// Rotations has the address after which each pool's rotation continues.
	Rotations map[string]netip.Addr
	// LeaseClock is the clock of the times in leases. CountError counts each failed call to the API
	// server, by verb.
	LeaseClock clock.PassiveClock
	CountError func(verb string, err error)

	Events  events.EventRecorder
	Metrics Metrics
	Log     logr.Logger
	Clock   clock.WithDelayedExecution
}

// Ground has the parts on which those of the caller and those of Parts build.
type Ground struct {
	o         GroundOptions
	Leases    *lease.Store
	Allocator *allocate.Allocator
	Foreign   *segment.ForeignHosts
	Guards    *guards.Guards
}

// NewGround makes a Ground.
func NewGround(o GroundOptions) *Ground {
	g := &Ground{o: o, Leases: lease.NewStore(lease.Options{
		Client: o.Client, Reader: o.Reader, View: o.Known, Node: o.Self.Name, Session: o.Self.Session, Clock: o.LeaseClock, CountError: o.CountError,
	})}
	g.Allocator = allocate.New(allocate.Options{Leases: g.Leases, Clock: o.Clock, Last: o.Rotations})
	g.Foreign = &segment.ForeignHosts{Recorded: g.Leases.ConflictsWith, Clock: o.Clock}
	g.Guards = guards.New(guards.Options{
		Session: o.Self.Session, Cluster: o.Self.Cluster, Kernel: o.Kernel, Attachments: o.Attachments,
		HasDevice: o.HasDevice,
		Events:    o.Events, Metrics: o.Metrics, Log: o.Log, Clock: o.Clock,
	})
	return g
}

// SourceGuards tells the kernel what interfaces may send. *sources.Keeper implements it.
type SourceGuards interface {
	Apply(context.Context, *attachment.Entry) error
	// Wake makes the next pass over all interfaces come soon.
	Wake()
}

// VFs are the virtual functions of pods. *vf.Keeper implements it.
type VFs interface {
	release.VFs
	// Wake makes the next pass come soon.
	Wake()
}

// Options of Parts. All but Multus and UserVFs are required.
type Options struct {
	Ground *Ground
	// StatefulSet is the treatment of the addresses of StatefulSet pods in pools that set none.
	StatefulSet v1alpha1.StatefulSetMode
	// DefaultSubnets are the default IPSubnets.
	DefaultSubnets ipam.ConfigPools
	// Patience is the time for which an ADD waits for an address of a full pool.
	Patience time.Duration
	// Cache reads from the agent's filtered caches.
	Cache client.Reader

	// The parts of the caller. Routing returns the routing of an entry's interface as it is in the pod.
	Warm         acquire.Warm
	HostLinks    holder.HostLinks
	VFs          VFs
	SourceGuards SourceGuards
	Links        acquire.Links
	Routing      func(*attachment.Entry) (*attachment.Routing, error)

	// The node: see acquire.Options, holder.Options and recovery.Options.
	OpenSegment func(parent int) (acquire.Segment, error)
	FindLink    func(netns, ifname string) (pod.Interface, error)
	FindUserVF  func(device string) (i pod.Interface, ok bool, err error)
	Sighted     func(parent int, addr netip.Addr) bool
	ParentOf    func(index int) (ipam.Parent, error)
	OfNode      func(parent int, addr netip.Addr) (bool, error)
	Places      func() ([]pod.Place, error)
	UserVFs     func() ([]vf.Function, error)

	// The cluster: see acquire.Options and holder.Options.
	Services    func(context.Context) []netip.Prefix
	NodeSubnets func() ([]netip.Prefix, error)
	Share       func() ipam.Share
	Owners      owner.Asker
	Multus      func() (ipam.Multus, error)
	Outage      func() (since time.Time, away bool)
	PassesPorts func() (bool, error)
	// Rand returns a number from 0 to 1.
	Rand func() float64
}

// Parts give addresses to pods, and take them back.
type Parts struct {
	Waiting  *waiting.Queue
	Releaser *release.Releaser
	Holders  *holder.Holders
	Recovery *recovery.Worker
}

// New makes the parts. The waits for an address, the undo of an ADD and the steps after an answer end
// with ctx. The caller restores the state of the last run: Recovery.Restore.
func New(ctx context.Context, o Options) *Parts {
	g, b := o.Ground, o.Ground.o
	p := &Parts{Waiting: waiting.New(waiting.Options{
		Leases: g.Leases, Server: b.LeaseClock, Rand: o.Rand, Metrics: b.Metrics, Clock: b.Clock, Log: b.Log, Background: ctx,
	})}
	guardSources := func(e *attachment.Entry) error {
		if err := o.SourceGuards.Apply(ctx, e); err != nil {
			return fmt.Errorf("guard the sources of %s of pod %s/%s: %w", e.Interface, e.PodNamespace, e.PodName, err)
		}
		return nil
	}
	p.Releaser = release.New(release.Options{
		Self: b.Self, Cache: o.Cache, Reader: b.Reader, Leases: g.Leases, Attachments: b.Attachments, Guards: g.Guards,
		HostLinks: o.HostLinks, VFs: o.VFs, FindLink: o.FindLink, Freed: g.Allocator.Freed, Log: b.Log, Clock: b.Clock,
	})
	p.Holders = holder.New(holder.Options{
		Self: b.Self, DefaultSubnets: o.DefaultSubnets, Patience: o.Patience,
		Cache: o.Cache, Reader: b.Reader, Attachments: b.Attachments, Leases: g.Leases, Waiting: p.Waiting, Releaser: p.Releaser,
		Acquirer: acquire.New(acquire.Options{
			Self: b.Self, StatefulSet: o.StatefulSet, Cache: o.Cache, Attachments: b.Attachments, Leases: g.Leases, Allocator: g.Allocator,
			Warm: o.Warm, Foreign: g.Foreign, Guards: g.Guards, GuardSources: guardSources, Releaser: p.Releaser, Links: o.Links,
			Sighted: o.Sighted, OfNode: o.OfNode, Services: o.Services, NodeSubnets: o.NodeSubnets, Share: o.Share,
			Events: b.Events, Metrics: b.Metrics, Log: b.Log, Clock: b.Clock, Background: ctx,
		}),
		Guards: g.Guards, GuardSources: guardSources, WakeSources: o.SourceGuards.Wake, HostLinks: o.HostLinks, WakeVFs: o.VFs.Wake,
		OpenSegment: o.OpenSegment, FindLink: o.FindLink, FindUserVF: o.FindUserVF, ParentOf: o.ParentOf,
		Services: o.Services, Owners: o.Owners, Multus: o.Multus, PassesPorts: o.PassesPorts, Outage: o.Outage,
		Events: b.Events, Step: b.Metrics.Step, Log: b.Log, Clock: b.Clock, Background: ctx,
	})
	p.Recovery = recovery.New(recovery.Options{
		Self: b.Self, Cache: o.Cache, Reader: b.Reader, Client: b.Client, Attachments: b.Attachments, Leases: g.Leases, Guards: g.Guards,
		Releaser: p.Releaser, WakeHostLink: o.HostLinks.Wake, FollowYoung: p.Holders.After.FollowYoung,
		OpenSegment: o.OpenSegment, FindLink: o.FindLink, Revision: b.Revision,
		Places: o.Places, Routing: o.Routing, UserVFs: o.UserVFs,
		Events: b.Events, Metrics: b.Metrics, Log: b.Log, Clock: b.Clock,
	})
	return p
}
