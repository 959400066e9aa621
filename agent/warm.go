package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/warm"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

// freshSighting is how long a sighting speaks against an address without a probe.
const freshSighting = 30 * time.Second

// newKeeper makes the keeper of this node's Warm leases.
func (a *agent) newKeeper(allocator *allocate.Allocator) *warm.Keeper {
	return warm.New(warm.Options{
		Node: a.node, Cache: a.mgr.GetCache(), Leases: a.store, Allocator: allocator, Journal: a.journal,
		Named: namedHere, Parent: parentIndex, Watch: a.watchLong, Held: a.heldHere, Sighted: a.sighted, Share: a.share,
		// The holders are made after the keeper.
		GiveWay: func() { a.holders.GiveWay() },
		Metrics: a.counters, Events: a.events, Log: a.log, Clock: clock.RealClock{},
	})
}

// parentIndex finds an interface of this node by its name, which is no other one
// that it has beside. It fails where that cannot be told now.
func parentIndex(name string) (index int, exists bool, err error) {
	link, err := netlink.LinkByName(name)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("look for interface %s: %w", name, err)
	}
	return link.Attrs().Index, link.Attrs().Name == name, nil
}

func (a *agent) watchLong(parent int, addr netip.Addr, p segment.ProbeParams) (warm.Watch, error) {
	seg, err := a.segments.Open(parent)
	if err != nil {
		return nil, err
	}
	return seg.WatchLong(addr, p)
}

// heldHere tells whether a pod of this node holds an address, with which MAC.
func (a *agent) heldHere(parent int, addr netip.Addr) (net.HardwareAddr, bool) {
	e, _, held := a.holders.Holder(bpf.Key{Segment: uint32(parent), Addr: addr})
	if !held {
		return nil, false
	}
	mac, err := net.ParseMAC(e.MAC)
	return mac, err == nil
}

// sighted tells whether somebody was just heard to speak for an address.
func (a *agent) sighted(parent int, addr netip.Addr) bool {
	return a.kernel.SightedWithin(bpf.Key{Segment: uint32(parent), Addr: addr}, freshSighting)
}

// watchWarm wakes the keeper when something changes that it goes by.
func watchWarm(mgr ctrl.Manager, k *warm.Keeper) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	b := builder.ControllerManagedBy(mgr).Named("warm").
		Watches(&v1alpha1.IPLease{}, one, builder.WithPredicates(about(v1alpha1.StateWarm)))
	for _, o := range []client.Object{&v1alpha1.IPPool{}, &v1alpha1.ReservedIP{}, &corev1.Node{}} {
		b = b.Watches(o, one)
	}
	return b.Complete(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		k.Wake()
		return reconcile.Result{}, nil
	}))
}
