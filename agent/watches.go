// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/guards/sources"
	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/hostlink"
	"github.com/fenceline/fenceline/agent/install"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/parent"
	"github.com/fenceline/fenceline/agent/parent/subinterface"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/recovery"
	"github.com/fenceline/fenceline/agent/watch"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/apiserver"
	"github.com/fenceline/fenceline/internal/diagnosis"
)

// rereadSpread is the longest time from the return of the API server to the reads of all leases, so that the agents
// of a large cluster do not read together. The DELs and moves of the outage do not wait for it.
const rereadSpread = 5 * time.Second

// keepInstalled keeps the plugin and the network configuration on the node.
func (a *agent) keepInstalled(ctx context.Context) error {
	return a.installer.Keep(ctx, install.KeepOptions{
		Reporter: a.reporter,
		Ready:    func(ctx context.Context) bool { return a.ready.Check(ctx) == nil },
		Runtime: func(ctx context.Context) (string, error) {
			node := &corev1.Node{}
			if err := a.cached.Get(ctx, client.ObjectKey{Name: a.node}, node, client.UnsafeDisableDeepCopy); err != nil {
				return "", fmt.Errorf("read the container runtime of node %s: %w", a.node, err)
			}
			return node.Status.NodeInfo.ContainerRuntimeVersion, nil
		},
	})
}

// exclusive returns the keeper of the exclusive parents.
func (a *agent) exclusive() *guards.Exclusive {
	if err := a.kernel.Senders(); err != nil && len(a.exclusiveParents) > 0 {
		a.log.Error(err, "exclusive parents pass frames of pods with the MAC of the node; use a kernel with BTF (CONFIG_DEBUG_INFO_BTF)")
	}
	return guards.NewExclusive(guards.ExclusiveOptions{
		Names: a.exclusiveParents, Index: parent.Index, Parents: a.segments.Names,
		SetTrusted: a.kernel.Sources.SetTrusted, SetAddresses: a.kernel.Sources.SetNodeAddresses, Log: a.log, Clock: clock.RealClock{},
	})
}

// makeHazards returns the watch for anything else that works on the frames of the parents.
func (a *agent) makeHazards() *parent.Hazards {
	return parent.NewHazards(parent.HazardOptions{
		Reporter: a.reporter,
		Parents:  a.parents.Names, // also one whose observer cannot be attached
		Look: func(index int) (parent.HazardFacts, error) {
			return parent.LookForHazards(index, a.kernel.Observers.Others, a.kernel.Observers.Blocked, pod.Below, pod.Rewrites)
		},
		Present: func(name string, kind parent.HazardKind, present bool) {
			a.counters.ParentHazard(name, string(kind), present)
		},
		Forget: a.counters.ParentGone,
	})
}

// gone returns the watch for interfaces that pods have lost.
func (a *agent) gone() *holder.Gone {
	return holder.NewGone(holder.GoneOptions{
		Reporter: a.reporter, Session: a.Session, Entries: a.attachments.All,
		Has: a.links.Has,
		Guarded: func(e *attachment.Entry) (bool, error) {
			if e.Unguarded {
				return true, nil // it never had an interface
			}
			if e.Device != "" { // a VF that somebody moves takes its guard along
				return pod.HasDevice(e.NetNS, e.Device)
			}
			return a.Guards.Attached(e)
		},
		ParentExists: parent.Exists, Pods: a.cached, Lost: a.counters.InterfacesGone,
	})
}

// impostors returns the watch for interfaces by which pods get frames of others.
func (a *agent) impostors() *sources.Impostors {
	return sources.NewImpostors(sources.ImpostorOptions{
		Reporter: a.reporter, Session: a.Session, Entries: a.attachments.All, Links: a.links, SourcesOf: a.kernel.Sources.Of,
		Gateways: a.parents.Gateways, Ask: a.answerers, Kill: a.Releaser.Silence, Removed: a.counters.ImpostorRemoved,
	})
}

// changes tells the parts of the agent of changes of interfaces and addresses.
func (a *agent) changes(exclusive *guards.Exclusive, impostors *sources.Impostors) *parent.Changes {
	return &parent.Changes{
		Link: func(physical bool) {
			exclusive.Wake()
			if physical {
				a.Guards.Wake()
			}
		},
		Address: a.hostLinks.AddressesChanged, Pod: impostors.Changed,
		Missed: func() {
			exclusive.Wake()
			a.Guards.Wake()
			a.hostLinks.AddressesChanged()
			impostors.Missed()
		},
		Log: a.log, Clock: clock.RealClock{},
	}
}

// answerers asks for an address on a parent of the node's pods.
func (a *agent) answerers(ctx context.Context, parent int, addr netip.Addr) ([]net.HardwareAddr, error) {
	seg, open := a.segments.Get(parent)
	if !open {
		return nil, nil
	}
	return seg.Answerers(ctx, addr)
}

// needsPodCIDRs reports whether a pod of this node has its default routes on the underlay, and its first
// interface from another network.
func (a *agent) needsPodCIDRs() bool {
	return slices.ContainsFunc(a.attachments.All(), func(e *attachment.Entry) bool { return e.Routing != nil && e.Routing.TakesDefault })
}

// followServices repairs all host links after a change of the service CIDRs or the pod CIDRs.
func (a *agent) followServices(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.services.Changed():
			a.hostLinks.WakeAll()
		case <-a.podCIDRs.Changed():
			a.hostLinks.WakeAll()
		}
	}
}

// balancers returns the addresses of load balancers that this node serves to the pod of an entry. The node
// announces an address if the last frame about it had the MAC of the parent.
func (a *agent) balancers(e *attachment.Entry) ([]netip.Addr, error) {
	services := &corev1.ServiceList{}
	if err := a.cached.List(context.Background(), services, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Services of type LoadBalancer: %w", err)
	}
	return hostlink.Balancers(services.Items, func(addr netip.Addr) bool {
		parent, err := netlink.LinkByIndex(e.ParentIndex)
		if err != nil {
			return false
		}
		s, ok, err := a.kernel.Sightings.Last(bpf.Key{Segment: uint32(e.ParentIndex), Addr: addr})
		return err == nil && ok && bytes.Equal(s.MAC, parent.Attrs().HardwareAddr)
	}), nil
}

// keepSmall returns memory that is no longer needed, once the caches are synced.
func (a *agent) keepSmall(ctx context.Context) error {
	if a.mgr.GetCache().WaitForCacheSync(ctx) {
		keepFootprint(ctx, func(err error) { a.log.Info("memory could not be returned", "why", err.Error()) })
	}
	return nil
}

// storeWatch ends the agent when the API server's store went back: its caches then hold objects
// that the store has lost, and the next agent reads every lease (R7).
func (a *agent) storeWatch(hints *watch.Hints) *apiserver.RevisionWatch {
	report := recovery.NewWentBack(recovery.WentBackOptions{
		Reporter: a.reporter, Bound: a.attachments.Bound, CaughtUp: a.Recovery.LookAgain, TokensAhead: a.counters.TokensAhead,
	})
	return &apiserver.RevisionWatch{
		Reader: a.mgr.GetAPIReader(), Outages: a.api.outages,
		Known: func(newest uint64) {
			if err := a.kernel.Ceiling.Know(newest); err != nil {
				a.log.Error(err, "the kernel may ignore the newest claims of other nodes")
			}
		},
		Live:   report.StoreIsAt,
		Back:   func() { hints.Doubt(); a.Recovery.LookAgain() },
		Spread: func() time.Duration { return rand.N(rereadSpread) },
		Cached: func(ctx context.Context) (uint64, error) {
			return apiserver.GreatestRevision(ctx, a.cached, &v1alpha1.IPLeaseList{}, &v1alpha1.IPPoolList{}, &corev1.PodList{})
		},
		Clock: clock.RealClock{}, Log: a.log,
	}
}

// hints returns the reader of the leases of this node.
func (a *agent) hints() *watch.Hints {
	return watch.NewHints(watch.HintOptions{
		Node: a.node, Client: a.mgr.GetClient(), Live: a.mgr.GetAPIReader(), Leases: a.Leases, View: a.cached.Leases,
		Journal: func() (names []string) {
			for _, e := range a.attachments.All() {
				for _, address := range e.Addresses {
					names = append(names, address.LeaseName)
				}
			}
			return names
		},
		Waits: a.Waiting.Waits, WaitsChanged: a.Waiting.News, Hear: a.Waiting.Hear, Release: a.keeper.Release,
		Rand: rand.Float64, Clock: clock.RealClock{}, Log: a.log,
	})
}

// makeSubinterfaces returns the keeper of the VLAN subinterfaces that networks name.
func (a *agent) makeSubinterfaces() *subinterface.Keeper {
	return subinterface.New(subinterface.Options{
		Reporter: a.reporter, Parents: a.vlanParents, Networks: a.networks, Kernel: subinterface.Kernel{},
		Used: func(index int) bool {
			return slices.ContainsFunc(a.attachments.All(), func(e *attachment.Entry) bool { return e.ParentIndex == index })
		},
		Faults: a.counters.SubinterfaceFaults,
	})
}

// networks returns the parents of this node that its network configuration and the pools name. With
// an error, some are missing.
func (a *agent) networks() (all []subinterface.Network, err error) {
	_, masters, unknown := a.installer.Masters()
	all = append(all, subinterface.Network{Of: "the network configuration of the chart", Parents: masters})
	node, pools := &corev1.Node{}, &v1alpha1.IPPoolList{}
	reader := a.cached
	if err := errors.Join(
		reader.Get(context.Background(), client.ObjectKey{Name: a.node}, node, client.UnsafeDisableDeepCopy),
		reader.List(context.Background(), pools, client.UnsafeDisableDeepCopy),
	); err != nil {
		return all, fmt.Errorf("read the pools of node %s: %w", a.node, err)
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		if ipam.ForNode(pool, a.node, node.Labels) != nil {
			continue
		}
		all = append(all, subinterface.Network{
			Of: "pool " + pool.Name, VLAN: int(ptr.Deref(pool.Spec.Vlan, 0)), Parents: pool.Spec.Parents,
		})
	}
	return all, unknown
}

// misplaced reports pods that run on another parent than new ones would.
func (a *agent) misplaced(m diagnosis.Misplaced) {
	a.reporter.NodeEventf(corev1.EventTypeWarning, "ParentDiffers", "Watch", "%d pods run on %s, but %s; %s: %s",
		len(m.Pods), m.Parent, m.Why, m.Do, strings.Join(m.Pods, ", "))
}

// named returns the interfaces that the networks of this node and the settings of the agent name. It is
// nil if they cannot be read now.
func (a *agent) named() []diagnosis.Named {
	networks, err := a.networks()
	if err != nil {
		return nil
	}
	networks = append(networks, subinterface.Network{Of: "agent.exclusiveParents of the chart", Parents: a.exclusiveParents},
		subinterface.Network{Of: "agent.vlanParents of the chart", Parents: a.vlanParents})
	all := []diagnosis.Named{}
	for _, n := range networks {
		for _, name := range n.Parents {
			_, exists, err := parent.Index(name)
			if err != nil {
				return nil
			}
			if name != "" { // the interface of the default route
				all = append(all, diagnosis.Named{Of: n.Of, Name: name, Exists: exists})
			}
		}
	}
	return all
}
