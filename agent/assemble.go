// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/assembly"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/cniserver"
	"github.com/fenceline/fenceline/agent/defence"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/guards/sources"
	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/agent/hostlink/cidr"
	"github.com/fenceline/fenceline/agent/hostlink/masquerade"
	"github.com/fenceline/fenceline/agent/install"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/metrics"
	"github.com/fenceline/fenceline/agent/parent"
	"github.com/fenceline/fenceline/agent/parent/subinterface"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/pod/vf"
	"github.com/fenceline/fenceline/agent/proof"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/warm"
	"github.com/fenceline/fenceline/agent/watch"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/cni/spool"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/metricsendpoint"
	"github.com/fenceline/fenceline/internal/owner"
)

// freshSighting is how long a sighting counts against an address without a probe.
const freshSighting = 30 * time.Second

// netnsDir is where container runtimes keep the network namespaces of pods.
const netnsDir = "/var/run/netns"

// agent is everything that runs on a node.
type agent struct {
	settings
	lease.Identity
	log         logr.Logger
	api         apiServer
	mgr         manager.Manager
	watcher     client.WithWatch
	cached      *watch.Client
	kernel      *bpf.Kernel
	attachments *attachment.Table
	links       *pod.Finder
	installer   *install.Installer

	// assemble makes all below.
	*assembly.Ground
	*assembly.Parts
	counters  *metrics.Agent
	reporter  event.Reporter
	peers     *ipam.Peers
	segments  *segment.Segments
	keeper    *warm.Keeper
	sources   *sources.Keeper
	rules     *masquerade.Keeper
	reach     *hostlink.Reach
	vfs       *vf.Keeper
	hostLinks *hostlink.Links
	hazards   *parent.Hazards
	vlans     *subinterface.Keeper
	defence   *defence.Defence
	speakers  *defence.Speakers
	machines  *defence.Machines
	late      *prometheus.CounterVec
	parents   *parent.Parents
	adopter   *holder.Adopter
	verifier  *proof.Verifier
	services  *cidr.Services
	podCIDRs  *cidr.Pods
	key       *guards.KeyWatch
	state     *attachment.Directory
	ready     *Ready
}

// assemble makes the parts and restores the state of the last run.
func (a *agent) assemble(ctx context.Context) error {
	a.counters = metrics.New(ctrlmetrics.Registry)
	a.reporter = event.Reporter{
		Node: a.node, Events: event.Recorder{To: a.mgr.GetEventRecorder("fenceline-agent")}, Log: a.log, Clock: clock.RealClock{},
	}
	a.peers = &ipam.Peers{Cache: a.cached, Pod: client.ObjectKey{Namespace: a.namespace, Name: a.pod}}
	a.services = cidr.WatchedServices(a.watcher, a.namespace, a.attachments.Services, a.log)
	if len(a.serviceCIDRs) > 0 {
		a.services = cidr.GivenServices(a.serviceCIDRs)
	}
	a.podCIDRs = cidr.NewPods(cidr.PodOptions{
		Reporter: a.reporter, API: a.mgr.GetAPIReader(), Needed: a.needsPodCIDRs, Unknown: a.counters.PodCIDRsUnknown,
	})
	if len(a.settings.podCIDRs) > 0 {
		a.podCIDRs = cidr.GivenPods(a.settings.podCIDRs)
	}
	a.sources = sources.New(sources.Options{
		Reporter: a.reporter, Session: a.Session, Entries: a.attachments.All, Pools: a.cached, Kernel: sources.Kernel{Sources: a.kernel.Sources, Sockets: a.kernel.Sockets},
		Virtuals: a.usableVirtuals, Interfaces: a.links,
	})
	a.segments = segment.New(segment.Config{
		Kernel: segment.KernelOf(a.kernel), Log: a.log, OnAsked: parent.NewMute(a.reporter).Asked, OnSource: a.sources.Met,
	})
	if err := a.makeParts(ctx); err != nil {
		return err
	}
	defends := defence.Options{
		Reporter: a.reporter, Cluster: a.Cluster, Cache: a.cached, Attachments: a.attachments, Leases: a.Leases,
		OnFence: a.Holders.Fenced, Conflict: a.counters.Conflict,
	}
	a.defence, a.late = defence.New(defends), metrics.LateSpeakers()
	a.speakers = defence.NewSpeakers(defence.SpeakerOptions{
		Options: defends, Client: a.cached, Live: a.mgr.GetAPIReader(), Virtuals: a.virtuals, Exclusive: a.exclusiveVirtuals,
		Configured: func(e *attachment.Entry, addr netip.Addr) (net.HardwareAddr, bool, error) {
			return a.links.Configured(e.NetNS, e.Interface, addr)
		},
		OpenSegment: a.openSpeakersSegment, Turns: a.Guards.Leases, IsPods: a.isPods, Late: func(pool string) { a.late.WithLabelValues(pool).Inc() },
	})
	a.machines = &defence.Machines{MachineOptions: defence.MachineOptions{Options: defends, Client: a.cached, Heard: a.heard}}
	network, masters, err := a.installer.Masters()
	if err != nil {
		a.log.Error(err, "the agent listens on a parent from its first pod on only")
	}
	a.parents = &parent.Parents{
		Node: a.node, Bound: a.attachments.Bound, Segments: a.segments, Configured: parent.Network{Name: network, Masters: masters}, Observers: a.kernel.Observers, Sightings: a.kernel.Sightings, Log: a.log,
		Pools: a.cached,
		Tell:  a.misplaced,
	}
	a.hazards, a.vlans = a.makeHazards(), a.makeSubinterfaces()
	a.adopter = holder.NewAdopter(a.Holders, holder.AdoptOptions{Places: a.places, Unfit: a.links.Unfit, KeepARP: a.links.KeepARP})
	a.verifier = proof.New(proof.Options{
		Reporter: a.reporter, Self: a.self(), Cache: a.cached, Leases: a.Leases,
		KillHolder: a.Releaser.KillHolder, Adopt: a.adopter.Adopt, IsStandby: a.Releaser.IsStandby,
		OpenSegment: func(pool *v1alpha1.IPPool, last segment.LastHolder) (proof.Segment, bool, error) {
			return a.parents.Segment(pool, last)
		},
		Verified: a.counters.Verification, Conflict: a.counters.Conflict,
	})
	a.key = guards.NewKeyWatch(guards.KeyWatchOptions{
		Reporter: a.reporter, Cache: a.cached, Namespace: a.namespace, HasKey: a.segments.HasKey,
		SetFault: a.counters.ClaimKeyFault,
	})
	a.state = attachment.NewDirectory(attachment.DirectoryOptions{Reporter: a.reporter, Dir: a.stateDir, Ensure: a.attachments.Ensure})
	a.ready = &Ready{
		CachesSynced: a.cached.Filled, KeySettled: a.key.Settled, State: a.state.Check,
		InstallPlugin: a.installer.EnsurePlugin, Outage: a.api.outages.Since,
	}
	if err := a.Recovery.Restore(); err != nil {
		// The interface of a pod may have gone while the agent was down. The agent serves the others.
		a.log.Error(err, "not all attachments of the last run could be restored")
	}
	return nil
}

// makeParts makes the parts that give addresses to pods, and the keepers that they use.
func (a *agent) makeParts(ctx context.Context) (err error) {
	a.reach = a.makeReach()
	a.rules = masquerade.NewKeeper(masquerade.Options{
		Reporter: a.reporter, Entries: a.attachments.All,
		Services: func() error {
			_, unknown := a.services.Prefixes()
			if errors.Is(unknown, cidr.ErrNotRead) {
				return nil // the agent has just started, or the API server is away
			}
			return unknown
		},
		Reach:    a.reach.Fault,
		SetFault: a.counters.HostLinkFault,
	})
	last, _ := a.attachments.Rotations.Get()
	a.Ground = assembly.NewGround(assembly.GroundOptions{
		Self: a.self(), Client: a.cached, Reader: a.mgr.GetAPIReader(), Known: a.cached.Leases, Attachments: a.attachments, Kernel: guards.KernelOf(a.kernel), Revision: a.kernel.Ceiling.Revision,
		HasDevice: pod.HasDevice, Rotations: last, LeaseClock: a.api.now, CountError: a.counters.APIError,
		Events: a.reporter.Events, Metrics: a.counters, Log: a.log, Clock: clock.RealClock{},
	})
	a.vfs, a.keeper = a.makeVFs(), a.makeKeeper(ctx)
	if a.hostLinks, err = a.makeHostLinks(); err != nil {
		return err
	}
	a.Parts = assembly.New(ctx, assembly.Options{
		Ground: a.Ground, StatefulSet: a.statefulSet, DefaultSubnets: a.defaultSubnets,
		Patience: min(a.addressWait, agentapi.WaitTimeout), Cache: a.cached,
		Warm: a.keeper, HostLinks: a.hostLinks, VFs: a.vfs, SourceGuards: a.sources, Links: a.links, Routing: a.hostLinks.Read,
		OpenSegment: a.openSegment, FindLink: a.links.Find, FindUserVF: findUserVF,
		Sighted: a.sighted, ParentOf: parent.Describe, OfNode: parent.OfNode,
		Places:      a.places,
		UserVFs:     func() ([]vf.Function, error) { return vf.UserDriven(vf.Sysfs) },
		Services:    a.services.Await,
		NodeSubnets: func() ([]netip.Prefix, error) { return parent.SubnetsOf(a.nodeAddresses()) },
		Share:       a.peers.Share,
		Owners:      owner.Asker{Live: a.mgr.GetAPIReader(), Scales: a.cached, Mapper: a.mgr.GetRESTMapper()},
		Outage:      a.api.outages.Since,
		Multus:      func() (ipam.Multus, error) { return ipam.Networks(a.confDir, a.multusNetwork) },
		PassesPorts: func() (bool, error) { return ipam.PassesPorts(a.confDir) },
		Rand:        rand.Float64,
	})
	return nil
}

// places returns the interfaces in the network namespaces of the node.
func (a *agent) places() ([]pod.Place, error) { return a.links.Search(netnsDir) }

// self is this node.
func (a *agent) self() proof.Node {
	return proof.Node{Name: a.node, Session: a.Session, Cluster: a.Cluster, OthersShare: a.peers.Others}
}

// makeReach makes the watch for pods of other nodes that this node does not reach.
func (a *agent) makeReach() *hostlink.Reach {
	return hostlink.NewReach(hostlink.ReachOptions{
		Entries: a.attachments.All, NodeAddresses: a.nodeAddresses, Speakers: a.kernel.Sightings.Speakers, Pools: a.cached,
		OnSegment: func(ctx context.Context, parent int, addr netip.Addr) (bool, error) {
			seg, open := a.segments.Get(parent)
			if !open {
				return false, nil
			}
			reply, err := seg.Ask(ctx, addr)
			return reply.Answered, err
		},
		Log: a.log, Clock: clock.RealClock{},
	})
}

// makeVFs makes the keeper of the virtual functions of the node's pods.
func (a *agent) makeVFs() *vf.Keeper {
	return vf.NewKeeper(vf.Options{
		Reporter: a.reporter, Session: a.Session, Disabled: !a.vfWalls, Entries: a.attachments.All, Entry: a.attachments.Get,
		Silenced: a.Guards.Silenced, Alone: a.Guards.Alone, SetHolderSilent: a.Guards.Leases.SetHolderSilent,
		OneMAC: func(e *attachment.Entry) bool {
			s := a.kernel.Sources.Of(e.Slot)
			return s.Mode == bpf.SourcesEnforce && len(s.MACs) == 0
		},
		Cards:   vf.Host{},
		Missing: func(wall vf.Wall, vfs int) { a.counters.VFWallMissing(string(wall), vfs) },
	})
}

// makeKeeper makes the keeper of the Warm leases that ADDs use.
func (a *agent) makeKeeper(ctx context.Context) *warm.Keeper {
	return warm.New(warm.Options{
		Reporter: a.reporter, Cache: a.cached, Leases: a.Leases, Allocator: a.Allocator, Journal: a.attachments.Pairs,
		Named: parent.Named, Carries: parent.Carries, Parent: parent.Index, Sighted: a.sighted, Share: a.peers.Share,
		Watch: a.watchLong, Held: a.attachments.MAC,
		GiveWay: func() { a.attachments.Calls.GiveWay(ctx, clock.RealClock{}) }, Foreign: a.Foreign,
		Metrics: a.counters,
	})
}

// makeHostLinks makes the host links of the node's pods.
func (a *agent) makeHostLinks() (*hostlink.Links, error) {
	return hostlink.New(hostlink.Options{
		Session: a.Session, Guards: a.Guards, Fenced: a.Guards.Leases.Fenced, Entries: a.attachments.All, Entry: a.attachments.Get, TryLock: a.attachments.Calls.TryLock,
		Services: a.services.Prefixes, PodCIDRs: a.podCIDRs.Prefixes, NodeAddresses: a.nodeAddresses, Prepare: a.rules.Prepare,
		Balancers: a.balancers, Log: a.log, Clock: clock.RealClock{},
	})
}

// sighted reports whether another host that uses the address was heard a moment ago.
func (a *agent) sighted(parent int, addr netip.Addr) bool {
	return a.kernel.Sightings.Within(bpf.Key{Segment: uint32(parent), Addr: addr}, freshSighting)
}

// nodeAddresses returns the internal addresses of the Node object, in its order.
func (a *agent) nodeAddresses() []netip.Addr {
	node := &corev1.Node{}
	if err := a.cached.Get(context.Background(), client.ObjectKey{Name: a.node}, node, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the kernel chooses the source
	}
	var found []netip.Addr
	for _, address := range node.Status.Addresses {
		if addr, err := netip.ParseAddr(address.Address); err == nil && address.Type == corev1.NodeInternalIP {
			found = append(found, addr)
		}
	}
	return found
}

// openSegment returns the segment of a parent, and opens it at first use.
func (a *agent) openSegment(parent int) (acquire.Segment, error) {
	if seg, ok := a.segments.Get(parent); ok {
		return seg, nil
	}
	return a.segments.Open(parent)
}

// watchLong begins to watch an address on a parent.
func (a *agent) watchLong(parent int, addr netip.Addr, p segment.ProbeParams) (warm.Watch, error) {
	seg, err := a.segments.Open(parent)
	if err != nil {
		return nil, err
	}
	return seg.WatchLong(addr, p)
}

// setNetworks gives the networks of the pools to the kernel, and reports whether they all fit.
func (a *agent) setNetworks(networks []uint64) error {
	err := a.kernel.Leases.SetNetworks(networks)
	if full := errors.Is(err, bpf.ErrNetworksFull); full || err == nil {
		a.counters.NetworksFull(full)
	}
	return err
}

// diagnosis tells people about the node.
func (a *agent) diagnosis() *diagnosisNode {
	own := ""
	if a.conflist != "" {
		own = filepath.Base(a.conflist)
	}
	return &diagnosisNode{
		Name: a.node, Ready: a.ready.Check, HasTCX: a.kernel.HasTCX, Segments: a.segments, OthersShare: a.peers.Others,
		Hazards: a.hazards.Faults, Misplaced: a.parents.Misplaced, Named: a.named,
		Index: parent.Index, OfNode: parent.OfNode, ForwardingOff: masquerade.ForwardingOff, Own: own,
		Configuration: func() (string, error) { return install.First(a.confDir) }, Clock: clock.RealClock{},
	}
}

// start gives the parts that need the API server to the manager, which runs them once its caches are
// synced. It returns those that look after the pods of this node in the meantime too.
func (a *agent) start() (early []manager.RunnableFunc, err error) {
	moves := metrics.Moves(func() (int, time.Duration) {
		n, first := attachment.Moved(a.attachments)
		if n == 0 {
			return 0, 0
		}
		return n, time.Since(first)
	})
	segments := a.segments.Collector(func(int) bool { return a.peers.Others() }, a.parents.Expected)
	ctrlmetrics.Registry.MustRegister(moves...)
	ctrlmetrics.Registry.MustRegister(segments, a.sources, a.late, metricsendpoint.BuildInfo(), metrics.TCX(a.kernel.HasTCX),
		metrics.SocketGuard(func() bool { return a.kernel.Sockets.Unguarded() == nil }))
	server, err := cniserver.New(cniserver.Options{
		Backend: &backend{a.Holders, a.diagnosis(), a.ready, a.links.Unfit, a.speakers.Wake}, Socket: a.socket, Spool: spool.Dir(filepath.Join(a.stateDir, "spool")),
		Metrics: ctrlmetrics.Registry, Log: a.log,
	})
	if err != nil {
		return nil, err
	}
	keys := &guards.KeyReconciler{
		Cache: a.cached, SetKernelKeys: a.kernel.SetKeys, SetSigningKeys: a.segments.SetKeys,
		Used: a.counters.ClaimKeysUsed, Log: a.log,
	}
	if err := keys.Inherit(a.kernel.Keys()); err != nil {
		a.log.Error(err, "this node claims no address until the API server answers")
	}
	exclusive, impostors, hints := a.exclusive(), a.impostors(), a.hints()
	ctrlmetrics.Registry.MustRegister(metrics.HintUnanswered(hints.Unanswered))
	early = []manager.RunnableFunc{
		a.state.Run, a.parents.Run, a.cached.Run, func(ctx context.Context) error {
			return a.segments.Run(ctx, defence.Wire{Defence: a.defence, Speakers: a.speakers})
		}, a.defence.Run,
		a.services.Run, a.Recovery.Run, a.Guards.Run, exclusive.Run, a.hazards.Run, impostors.Run, a.changes(exclusive, impostors).Run,
		a.hostLinks.Run, a.rules.Run, a.vfs.Run, a.followServices, server.Start,
	}
	return early, errors.Join(
		watch.Start(a.mgr, a.Cluster, a.cached, hints, watch.Watchers{
			Verifier: a.verifier, LeaseChanged: a.Recovery.Changed, WarmChanged: a.keeper.Wake, WaitChanged: a.Waiting.Changed,
			SetNetworks: a.setNetworks, PoolChanged: func() { a.sources.Wake(); a.vlans.Wake() }, BalancerChanged: a.hostLinks.WakeAll,
			VirtualChanged: func() { a.sources.Wake(); a.speakers.Wake() }, SpeakerChanged: a.speakers.Wake, ClaimKey: keys,
		}),
		a.addAll(
			a.cached.Fill, a.podCIDRs.Run, a.sources.Run, a.speakers.Run, a.machines.Run, a.gone().Run, a.adopter.Run, a.vlans.Run, a.reach.Run, a.key.Run, a.keeper.Run, a.keepSmall, a.keepInstalled,
			func(ctx context.Context) error {
				return a.Allocator.SaveRotations(ctx, a.attachments.Rotations, clock.RealClock{}, a.log)
			},
		),
		a.mgr.Add(a.storeWatch(hints)),
		a.mgr.AddHealthzCheck("alive", func(*http.Request) error { return nil }),
		a.mgr.AddReadyzCheck("add", func(r *http.Request) error { return a.ready.Check(r.Context()) }),
	)
}

// addAll gives the manager functions that run until their context ends.
func (a *agent) addAll(all ...manager.RunnableFunc) error {
	var err error
	for _, run := range all {
		err = errors.Join(err, a.mgr.Add(run))
	}
	return err
}
