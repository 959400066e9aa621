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
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/internal/poolset"
)

// isGuests reports whether the interface belongs to a virtual machine, which takes the MAC along when it migrates. On a
// macvlan its pod has another MAC than the guest.
func (i *iface) isGuests() bool {
	return owner.IsMachine(&i.who) && (i.link.NodeEnd != 0 || i.link.Device != "")
}

// chooseMAC gives the interface the MAC that its pod chose for its first address, or that the pool's policy has for it,
// or that of the guest that migrates to it. Without all, the interface has the MAC that its plugin gave it. The
// interface is down. The lease, the journal and the guard get this MAC from the first write on.
func (i *iface) chooseMAC(ctx context.Context, pool *v1alpha1.IPPool, addr netip.Addr, guests net.HardwareAddr) outcome {
	if len(i.won) > 0 {
		return outcome{} // the first address has chosen it
	}
	mac, err := pool.MACFor(addr)
	if err != nil {
		return outcome{poolRejected, refusal.New(refusal.NoPool, "%w", err)}
	}
	if chosen := i.macs[addr]; chosen != nil {
		mac = chosen
	}
	if guests != nil && i.link.NodeEnd != 0 {
		mac = guests // also if the policy has changed: the guest runs
	}
	i.sharedMAC = mac != nil || i.isGuests()
	if mac == nil {
		return ends(i.setMAC(i.made))
	}
	if i.call.Network.MACSpoofCheck && !bytes.Equal(mac, i.made) {
		return outcome{poolRejected, refusal.New(refusal.NoPool,
			"interface %s is to have the MAC %s, but macspoofchk of network %s drops all frames without %s, the MAC that its plugin made: remove macspoofchk, since the source guard judges MACs as well, or set this MAC by the plugin (capability mac)",
			i.who.Interface, mac, i.call.Network.Name, i.made)}
	}
	if i.link.Kind == pod.IPVLAN { // the parent and all its pods have one MAC
		return outcome{poolRejected, refusal.New(refusal.NoPool,
			"pool %s: spec.macPolicy gives each interface a MAC of its own, but interface %s is of type ipvlan and has the MAC of its parent %s; use macvlan, or a pool without macPolicy",
			pool.Name, i.who.Interface, i.link.Parent.Name)}
	}
	if i.link.Device != "" {
		return outcome{poolRejected, refusal.New(refusal.NoPool,
			"pool %s: spec.macPolicy gives each interface a MAC of its own, but interface %s is VF %s, whose PF %s gives it its MAC; use macvlan, or a pool without macPolicy",
			pool.Name, i.who.Interface, i.link.Device, i.link.Parent.Name)}
	}
	if o := isAlone(ctx, i.a.Cache, pool, addr, mac); o.result != won {
		return o
	}
	if err = i.lowerTwins(mac); err == nil {
		err = i.setMAC(mac)
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return outcome{rejected, refusal.New(refusal.TryAgain,
			"interface %s cannot have the MAC %s of its address yet: another interface of parent %s has it until its DEL: %w", i.who.Interface, mac, i.link.Parent.Name, err)}
	}
	return ends(err)
}

// isAlone rejects an address if another one may get the same MAC on this segment.
func isAlone(ctx context.Context, cache client.Reader, pool *v1alpha1.IPPool, addr netip.Addr, mac net.HardwareAddr) outcome {
	if addr.Is4() {
		return outcome{}
	}
	pools := &v1alpha1.IPPoolList{}
	if err := cache.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return ends(fmt.Errorf("list pools: %w", err))
	}
	if other, owner, ok := poolset.SameMAC(pool, addr, pools.Items); ok {
		return outcome{rejected, refusal.New(refusal.NoPool,
			"pool %s: spec.macPolicy gives the MAC %s to %s and to %s of pool %s, since both end with the same four octets; let spec.ips of the pools differ in them, or set another prefix",
			pool.Name, mac, addr, other, owner)}
	}
	return outcome{}
}

func (i *iface) setMAC(mac net.HardwareAddr) error {
	if bytes.Equal(mac, i.link.MAC) {
		return nil
	}
	if err := i.a.Links.SetMAC(i.call.NetNS, i.call.Interface, mac); err != nil {
		return fmt.Errorf("give interface %s of pod %s/%s its MAC: %w", i.who.Interface, i.who.Namespace, i.who.Pod, err)
	}
	i.link.MAC, i.who.MAC = mac, mac.String()
	return nil
}

// restoreMAC gives the interface back the MAC that its plugin gave it.
func (i *iface) restoreMAC() {
	err := i.setMAC(i.made)
	if err != nil && !errors.Is(err, pod.ErrNoNetNS) && !errors.Is(err, pod.ErrNoInterface) {
		i.a.Log.Info("the MAC of an interface is not restored", "why", err.Error())
	}
}

// lowerTwins sets the interfaces of earlier sandboxes with a MAC down: those of this pod's
// interface, and those whose slots are dead. While one is up, the kernel gives no other macvlan of
// the parent its MAC. Of veths it gives two the same one, so the error for a living one wraps that of the kernel.
func (i *iface) lowerTwins(mac net.HardwareAddr) error {
	for _, e := range i.a.Attachments.All() {
		if e.MAC != mac.String() || e.ParentIndex != i.link.Parent.Index || e.Attachment() == i.call.Attachment {
			continue
		}
		dead, err := i.a.Guards.Dead(e.Slot)
		if err != nil {
			return err
		}
		if !dead && (e.PodUID != i.who.PodUID || e.Interface != i.who.Interface) {
			return fmt.Errorf("interface %s of pod %s/%s: %w", e.Interface, e.PodNamespace, e.PodName, unix.EADDRINUSE)
		}
		err = i.a.Links.SetDown(e.NetNS, e.Interface)
		if err != nil && !errors.Is(err, pod.ErrNoNetNS) && !errors.Is(err, pod.ErrNoInterface) {
			return err
		}
	}
	return nil
}
