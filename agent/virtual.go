// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/defence"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

// virtuals returns the virtual addresses for which the pod of an entry may speak on an interface of these pools.
func (a *agent) virtuals(ctx context.Context, e *attachment.Entry, pools []*v1alpha1.IPPool) (map[netip.Addr]*v1alpha1.ReservedIP, error) {
	reservations, pod := &v1alpha1.ReservedIPList{}, &corev1.Pod{}
	if err := a.cached.List(ctx, reservations, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the virtual addresses: %w", err)
	}
	if len(reservations.Items) == 0 {
		return nil, nil
	}
	err := a.cached.Get(ctx, client.ObjectKey{Namespace: e.PodNamespace, Name: e.PodName}, pod, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) || err == nil && string(pod.UID) != e.PodUID {
		return nil, nil // not yet in the cache, or gone
	}
	if err != nil {
		return nil, fmt.Errorf("read the labels of pod %s/%s: %w", e.PodNamespace, e.PodName, err)
	}
	return v1alpha1.VirtualsOf(reservations.Items, pod.Namespace, pod.Labels, pools), nil
}

// usableVirtuals returns the same ones. The kernel keeps the pod from the exclusive ones until it has the turn.
func (a *agent) usableVirtuals(ctx context.Context, e *attachment.Entry, pools []*v1alpha1.IPPool) (map[netip.Addr]*v1alpha1.ReservedIP, error) {
	all, err := a.virtuals(ctx, e, pools)
	for addr, r := range all {
		if !r.Spec.Virtual.Exclusive {
			continue
		}
		if failed := a.Guards.Leases.HoldBack(bpf.Key{Segment: uint32(e.ParentIndex), Addr: addr}); failed != nil {
			delete(all, addr)
			err = errors.Join(err, failed)
		}
	}
	return all, err
}

// exclusiveVirtuals returns all exclusive virtual addresses, also those of pods on other nodes alone.
func (a *agent) exclusiveVirtuals(ctx context.Context) (map[netip.Addr]bool, error) {
	reservations, all := &v1alpha1.ReservedIPList{}, map[netip.Addr]bool{}
	if err := a.cached.List(ctx, reservations, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the virtual addresses: %w", err)
	}
	for i := range reservations.Items {
		r := &reservations.Items[i]
		for _, text := range r.Spec.IPs {
			if addr, err := netip.ParseAddr(text); err == nil && r.Spec.Virtual != nil && r.Spec.Virtual.Exclusive {
				all[addr] = true
			}
		}
	}
	return all, nil
}

// openSpeakersSegment returns the segment of a parent, on which it listens for the speakers of virtual addresses.
func (a *agent) openSpeakersSegment(parent int) (defence.Segment, error) {
	if seg, ok := a.segments.Get(parent); ok {
		return seg, nil
	}
	return a.segments.Open(parent)
}

// heard returns the host that used an address on a parent last.
func (a *agent) heard(parent int, addr netip.Addr) (mac net.HardwareAddr, ago time.Duration, ok bool, err error) {
	last, ok, err := a.kernel.Sightings.Last(bpf.Key{Segment: uint32(parent), Addr: addr})
	return last.MAC, bpf.Now() - last.LastSeen, ok && last.LastSeen != 0, err
}

// isPods reports whether a MAC is that of a pod, perhaps of another node, which may speak for the addresses of a reservation.
func (a *agent) isPods(ctx context.Context, mac net.HardwareAddr, r *v1alpha1.ReservedIP) (bool, error) {
	live, pools := a.mgr.GetAPIReader(), &v1alpha1.IPPoolList{}
	if err := a.cached.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list pools: %w", err)
	}
	for i := range pools.Items {
		p := &pools.Items[i]
		if !slices.ContainsFunc(r.Spec.IPs, func(text string) bool {
			addr, err := netip.ParseAddr(text)
			return err == nil && p.Reaches(r.Spec.Network, addr)
		}) {
			continue
		}
		leases := &v1alpha1.IPLeaseList{}
		if err := live.List(ctx, leases, client.MatchingFields{"spec.pool": p.Name}); err != nil {
			return false, fmt.Errorf("list the leases of pool %s: %w", p.Name, err)
		}
		for i := range leases.Items {
			h := leases.Items[i].Spec.Holder
			if h == nil || h.MAC != mac.String() {
				continue
			}
			pod := &corev1.Pod{}
			err := client.IgnoreNotFound(live.Get(ctx, client.ObjectKey{Namespace: h.Namespace, Name: h.Pod}, pod))
			if err != nil || r.Spec.Virtual.Selects(pod.Namespace, pod.Labels) {
				return err == nil, err
			}
		}
	}
	return false, nil
}
