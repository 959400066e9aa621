// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// chooseMAC gives the interface the MAC that the pool's policy has for its first address. Without a
// policy, the interface has the MAC that its plugin gave it. The interface is down. The lease, the
// journal and the guard get this MAC from the first write on.
func (a *Interface) chooseMAC(ctx context.Context, pool *v1alpha1.IPPool, addr netip.Addr) error {
	if len(a.Won) > 0 {
		return nil // the first address has chosen it
	}
	mac, err := pool.MACFor(addr)
	if err != nil {
		return refusal.New(refusal.NoPool, "%w", err)
	}
	a.sharedMAC = mac != nil
	if mac == nil {
		return a.setMAC(a.made)
	}
	if a.Link.Kind == pod.IPVLAN { // the parent and all its pods have one MAC
		return refusal.New(refusal.NoPool,
			"pool %s: spec.macPolicy gives each interface a MAC of its own, but interface %s is of type ipvlan and has the MAC of its parent %s; use macvlan, or a pool without macPolicy",
			pool.Name, a.Who.Interface, a.Link.Parent.Name)
	}
	if a.Link.Device != "" {
		return refusal.New(refusal.NoPool,
			"pool %s: spec.macPolicy gives each interface a MAC of its own, but interface %s is VF %s, whose PF %s gives it its MAC; use macvlan, or a pool without macPolicy",
			pool.Name, a.Who.Interface, a.Link.Device, a.Link.Parent.Name)
	}
	if err := isAlone(ctx, a.h.Cache, pool, addr, mac); err != nil {
		return err
	}
	if err := a.lowerTwins(mac); err != nil {
		return err
	}
	return a.setMAC(mac)
}

// isAlone returns an error if another address may get the same MAC on this segment.
func isAlone(ctx context.Context, cache client.Reader, pool *v1alpha1.IPPool, addr netip.Addr, mac net.HardwareAddr) error {
	if addr.Is4() {
		return nil
	}
	pools := &v1alpha1.IPPoolList{}
	if err := cache.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list pools: %w", err)
	}
	if other, owner, ok := poolset.SameMAC(pool, addr, pools.Items); ok {
		return refusal.New(refusal.NoPool,
			"pool %s: spec.macPolicy gives the MAC %s to %s and to %s of pool %s, since both end with the same four octets; let spec.ips of the pools differ in them, or set another prefix",
			pool.Name, mac, addr, other, owner)
	}
	return nil
}

func (a *Interface) setMAC(mac net.HardwareAddr) error {
	if bytes.Equal(mac, a.Link.MAC) {
		return nil
	}
	err := a.h.Links.SetMAC(a.Request.NetNS, a.Request.Interface, mac)
	if errors.Is(err, unix.EADDRINUSE) {
		return refusal.New(refusal.TryAgain,
			"interface %s cannot have the MAC %s of its address yet: another interface of parent %s has it until its DEL", a.Who.Interface, mac, a.Link.Parent.Name)
	}
	if err != nil {
		return fmt.Errorf("give interface %s of pod %s/%s its MAC: %w", a.Who.Interface, a.Who.Namespace, a.Who.Pod, err)
	}
	a.Link.MAC, a.Who.MAC = mac, mac.String()
	return nil
}

// RestoreMAC gives the interface back the MAC that its plugin gave it.
func (a *Interface) RestoreMAC() {
	err := a.setMAC(a.made)
	if err != nil && !errors.Is(err, pod.ErrNoNetNS) && !errors.Is(err, pod.ErrNoInterface) {
		a.h.Log.Info("the MAC of an interface is not restored", "why", err.Error())
	}
}

// lowerTwins sets the interfaces of earlier sandboxes with a MAC down: those of this pod's
// interface, and those whose slots are dead. While one is up, the kernel gives no other macvlan of
// the parent its MAC.
func (a *Interface) lowerTwins(mac net.HardwareAddr) error {
	for _, e := range a.h.Journal.All() {
		if e.MAC != mac.String() || e.ParentIndex != a.Link.Parent.Index || e.Attachment() == a.Request.Attachment {
			continue
		}
		dead, err := a.h.Guards.Dead(e.Slot)
		if err != nil {
			return err
		}
		if !dead && (e.PodUID != a.Who.PodUID || e.Interface != a.Who.Interface) {
			continue
		}
		err = a.h.Links.SetDown(e.NetNS, e.Interface)
		if err != nil && !errors.Is(err, pod.ErrNoNetNS) && !errors.Is(err, pod.ErrNoInterface) {
			return err
		}
	}
	return nil
}
