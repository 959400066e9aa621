// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/waiting"
	"github.com/fenceline/fenceline/agent/warm"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
)

// Segment is the network segment behind one parent. *segment.Segment implements it.
type Segment interface {
	Probe(context.Context, netip.Addr, segment.ProbeParams) (segment.Answer, error)
	// Ask asks for an address that another host should use.
	Ask(context.Context, netip.Addr) (segment.Reply, error)
	ClaimAndConfirm(context.Context, segment.Claim) error
	Verify(context.Context, segment.Verification) (segment.Verdict, segment.Evidence, error)
	Announce(segment.Announcement)
	// Observe attaches the observer again if it was detached or lost its place.
	Observe() error
}

// Leases is the part of *lease.Store that holders need.
type Leases interface {
	Get(ctx context.Context, name string) (*v1alpha1.IPLease, error)
	TakeOver(context.Context, *v1alpha1.IPLease, lease.Request) (*v1alpha1.IPLease, error)
	Update(context.Context, *v1alpha1.IPLease, lease.Transition) (*v1alpha1.IPLease, error)
	Delete(context.Context, *v1alpha1.IPLease) error
	OfIdentity(ctx context.Context, who *v1alpha1.Holder) ([]v1alpha1.IPLease, error)
	InNamespace(ctx context.Context, pool, namespace string) ([]v1alpha1.IPLease, error)
	BindWarm(ctx context.Context, warm *v1alpha1.IPLease, r lease.Request) (*v1alpha1.IPLease, error)
	ComingFree(ctx context.Context, pool string) (int, error)
}

// Metrics counts the events of binding. Its methods may be called concurrently.
type Metrics interface {
	Conflict(pool string, source segment.Source)
	Verification(verdict segment.Verdict)
	// Renewal counts a renewal of the token of an address that was fenced although its lease was the
	// holder's own. It may be segment.Unverified.
	Renewal(verdict segment.Verdict)
	// GatewayUnanswered counts an ADD that failed because the gateway of a pool did not answer.
	GatewayUnanswered(pool string)
	// Step counts the time of a step of an ADD.
	Step(step string, took time.Duration)
}

// SourceGuards tells the kernel what an interface may send. *sources.Keeper implements it.
type SourceGuards interface {
	Apply(context.Context, *attachment.Entry) error
	// Wake makes the next pass over all interfaces come soon.
	Wake()
}

// VFs keeps the settings that PFs enforce on their virtual functions. *vf.Keeper implements it.
type VFs interface {
	// SwitchOff switches the VF of an entry without a guard off. It returns nil once the PF
	// confirms it.
	SwitchOff(*attachment.Entry) error
	// Release ends these settings for an entry that is to be removed.
	Release(*attachment.Entry) error
	// Wake makes the next pass come soon.
	Wake()
}

// Options of the Base. All but Multus, SourceGuards and VFs are required.
type Options struct {
	Self
	Stores
	Machine
	Knowledge
	Reports
}

// Self is this agent.
type Self struct {
	// Node is the name of this node, Session its current life, Cluster the UID
	// of the kube-system namespace.
	Node, Session, Cluster string
	// StatefulSet is the treatment of the addresses of StatefulSet pods in pools that set none.
	StatefulSet v1alpha1.StatefulSetMode
	// DefaultSubnets are the default IPSubnets.
	DefaultSubnets ipam.ConfigPools
	// Patience is the time for which an ADD waits for an address of a full pool.
	Patience time.Duration
}

// Stores has the sources of addresses and of their records.
type Stores struct {
	// Cache reads from the agent's filtered caches, Reader past them.
	Cache  client.Reader
	Reader client.Reader

	Leases    Leases
	Allocator *allocate.Allocator
	Warm      Warm
	// Foreign are the foreign hosts that have answered on this node.
	Foreign *segment.ForeignHosts
	// Waiting has the ADDs that wait for an address of a full pool.
	Waiting *waiting.Queue
	Journal *attachment.Table
}

// Machine has the parts of the node that holders act upon.
type Machine struct {
	Guards *guards.Guards
	// SourceGuards may be nil, which means none.
	SourceGuards SourceGuards
	// VFs are the virtual functions of pods; nil means none.
	VFs VFs
	// HostLinks makes host links and routes.
	HostLinks HostLinks
	// OpenSegment returns the segment of a parent, and opens it at first use. It does not check the
	// observer of an open segment; Observe does.
	OpenSegment func(parent int) (Segment, error)
	// FindLink finds a pod's interface in its network namespace.
	FindLink func(netns, ifname string) (pod.Interface, error)
	// FindUserVF finds a VF that a program drives itself. ok is false if the kernel drives the device.
	FindUserVF func(device string) (i pod.Interface, ok bool, err error)
	// Links changes pods' interfaces.
	Links Links
	// Sighted reports whether another host that uses the address was heard a moment ago, or a load balancer
	// has it.
	Sighted func(parent int, addr netip.Addr) bool
	// ParentOf describes the parent with this ifindex.
	ParentOf func(index int) (ipam.Parent, error)
	// OfNode reports whether this node has the address; a link-local one must be on the parent.
	OfNode func(parent int, addr netip.Addr) (bool, error)
}

// Knowledge has the facts about the cluster around the pods.
type Knowledge struct {
	// Services returns the known service CIDRs, NodeSubnets the subnets of the node's internal
	// addresses. ServicesAnswered is closed once the first search for the service CIDRs has ended.
	Services         func() []netip.Prefix
	ServicesAnswered <-chan struct{}
	NodeSubnets      func() ([]netip.Prefix, error)
	// Share returns this agent's part of every pool.
	Share func() ipam.Share
	// OthersShare reports whether there are other agents that this agent may hear.
	OthersShare func() bool
	// Owners finds the application of a pod.
	Owners owner.Asker
	// Multus reads the networks that Multus gives to pods of this node. If nil, there are none.
	Multus func() (ipam.Multus, error)
	// PassesPorts reports whether the runtime passes the hostPorts of pods to a plugin of their first
	// interface. If that cannot be known, it is true.
	PassesPorts func() (bool, error)
}

// Reports has the recorders of the holders' work, and the clock.
type Reports struct {
	Events  events.EventRecorder
	Metrics Metrics
	Log     logr.Logger
	Clock   clock.Clock
}

// Warm is the stock of this node's Warm leases. *warm.Keeper implements it.
type Warm interface {
	// Take reserves a lease for the caller until PutBack or Ended.
	Take(warm.Wish) (warm.Stocked, bool)
	// Doubt returns the evidence of the kernel against a lease that was taken as ready;
	// DoubtNone if there is none. For DoubtSpoken it also returns the other host.
	Doubt(warm.Stocked) (segment.Doubt, segment.Answer)
	// PutBack returns a lease that was not written.
	PutBack(warm.Stocked)
	// Ended reports that a lease is no longer Warm.
	Ended(warm.Stocked)
	// Used reports that a pod of this node got an address of a pool on a parent, without a request for
	// a particular one.
	Used(pool, parent string)
}

// Links changes the interfaces of pods. *pod.Finder implements it.
type Links interface {
	SetMAC(netns, ifname string, mac net.HardwareAddr) error
	SetDown(netns, ifname string) error
	// IgnoreRouters makes an interface take nothing from router advertisements and redirects.
	IgnoreRouters(netns, ifname string) error
}

// HostLinks makes the routing of pods' interfaces. *hostlink.Links implements it.
type HostLinks interface {
	// Make makes or completes the routing that an entry records.
	Make(*attachment.Entry) error
	// Check names the first thing that is wrong with an entry's interface and its routing.
	Check(*attachment.Entry) error
	// Remove removes the host link of an entry.
	Remove(*attachment.Entry) error
	// Wake repairs the routing of an attachment soon.
	Wake(agentapi.Attachment)
}
