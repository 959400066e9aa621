// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/internal/loop"
	"github.com/fenceline/fenceline/internal/wholelist"
)

const (
	// period is the time between two passes over the devices. A parent becomes exclusive within this
	// time after its first pod.
	period = 5 * time.Second
	// calm is the time for which changes of devices are gathered.
	calm = 100 * time.Millisecond
)

// ExclusiveOptions of an Exclusive. All but Names are required.
type ExclusiveOptions struct {
	// Names are the interfaces on which only this node and pods of Fenceline send.
	Names []string
	// Index finds an interface of the node by one of its names.
	Index func(name string) (index int, exists bool, err error)
	// Parents returns the names of the parents on which this node listens, by ifindex.
	Parents func() map[int]string
	// SetTrusted tells the kernel the MACs of the node's own devices on a parent, with which only the node
	// sends.
	SetTrusted func(parent int, macs []net.HardwareAddr, exclusive bool) error
	// SetAddresses tells the kernel the addresses of the node.
	SetAddresses func([]netip.Addr) error
	Log          logr.Logger
	Clock        clock.Clock
}

// Exclusive makes parents exclusive: only frames of the node itself and of pods of Fenceline
// leave the node by an exclusive parent. It drops a frame with a forged MAC, also with that of the
// node, even if the frame has passed the guard of its interface.
//
// Exclusive tells the kernel the devices of the node on exclusive parents, and their changes.
type Exclusive struct {
	ExclusiveOptions
	wake loop.Wake
	// told has the settings that the kernel was given last, and addresses those of the node.
	told      map[int]setting
	addresses []netip.Addr
}

// setting is the setting of a parent in the kernel.
type setting struct {
	exclusive bool
	macs      []net.HardwareAddr
}

// NewExclusive returns an Exclusive.
func NewExclusive(o ExclusiveOptions) *Exclusive {
	return &Exclusive{ExclusiveOptions: o, wake: loop.NewWake(), told: map[int]setting{}}
}

// Wake makes the next pass come soon, since a device of the node has changed.
func (k *Exclusive) Wake() {
	if len(k.Names) > 0 {
		k.wake.Up()
	}
}

// Run follows the devices of the calling network namespace until ctx ends.
func (k *Exclusive) Run(ctx context.Context) error {
	k.missing()
	l := loop.Loop{Clock: k.Clock, Period: period, Wake: k.wake, Gather: calm}
	l.Failed = func(err error) {
		k.Log.Error(err, "an exclusive parent does not know all devices of this node; the agent tries again")
	}
	return l.Try(ctx, func(context.Context) error { return k.pass() })
}

// missing reports the names that no interface has: a name may be misspelt, or meant for other nodes.
func (k *Exclusive) missing() {
	for _, name := range k.Names {
		if _, exists, err := k.Index(name); !exists {
			k.Log.Info("this exclusive parent cannot be found on the node; look at agent.exclusiveParents of the chart", "parent", name, "why", fmt.Sprint(err))
		}
	}
}

// pass tells the kernel about all parents.
func (k *Exclusive) pass() error {
	parents := k.Parents()
	exclusive, err := k.exclusive()
	if err != nil {
		return err
	}
	var links []netlink.Link
	var addrs []netlink.Addr
	if slices.ContainsFunc(slices.Collect(maps.Keys(parents)), func(index int) bool { return exclusive[index] }) {
		if links, err = wholelist.Of(netlink.LinkList); err != nil {
			return fmt.Errorf("list the devices of this node: %w", err)
		}
		addrs, err = wholelist.Of(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
		if err != nil {
			return fmt.Errorf("list the addresses of this node: %w", err)
		}
	}
	if own := addresses(links, addrs); !slices.Equal(own, k.addresses) {
		if err := k.SetAddresses(own); err != nil {
			return err
		}
		k.addresses = own
	}
	told := map[int]setting{}
	for _, index := range slices.Sorted(maps.Keys(parents)) {
		wanted := setting{exclusive: exclusive[index]}
		if wanted.exclusive {
			wanted.macs = devices(links, index)
		}
		last, known := k.told[index]
		if !known || last.exclusive != wanted.exclusive || !slices.EqualFunc(last.macs, wanted.macs, slices.Equal) {
			if err := k.SetTrusted(index, wanted.macs, wanted.exclusive); err != nil {
				return fmt.Errorf("parent %s: %w", parents[index], err)
			}
			if wanted.exclusive {
				k.Log.Info("only these devices of the node and pods of Fenceline send on this parent", "parent", parents[index], "devices", fmt.Sprint(wanted.macs))
			}
		}
		told[index] = wanted
	}
	k.told = told
	return nil
}

// exclusive has the interfaces of Names, by ifindex.
func (k *Exclusive) exclusive() (map[int]bool, error) {
	all := map[int]bool{}
	for _, name := range k.Names {
		index, exists, err := k.Index(name)
		if err != nil {
			return nil, err
		}
		if exists {
			all[index] = true
		}
	}
	return all, nil
}

// addresses returns the addresses from which a tunnel of the node may send: those of devices that are up,
// as the device with the addresses of Services (kube-proxy, IPVS) is down. They are sorted.
func addresses(links []netlink.Link, all []netlink.Addr) (own []netip.Addr) {
	up := map[int]bool{}
	for _, l := range links {
		up[l.Attrs().Index] = l.Attrs().Flags&net.FlagUp != 0
	}
	for _, a := range all {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && up[a.LinkIndex] && addr.Unmap().IsGlobalUnicast() {
			own = append(own, addr.Unmap())
		}
	}
	slices.SortFunc(own, netip.Addr.Compare)
	return slices.Compact(own)
}

// devices returns the MACs of the devices that send through a parent: the parent, and those above
// it, such as a macvlan of the node or one on a VLAN of the parent. The MACs are sorted.
func devices(links []netlink.Link, parent int) []net.HardwareAddr {
	below := map[int]int{}
	for _, l := range links {
		// The lower device may be in another namespace: its index then means nothing here. The parent
		// index of a veth is that of its peer.
		if a := l.Attrs(); a.NetNsID < 0 && l.Type() != "veth" {
			below[a.Index] = a.ParentIndex
		}
	}
	var macs []net.HardwareAddr
	for _, l := range links {
		a := l.Attrs()
		for index, steps := a.Index, 0; index != 0 && steps < len(links); index, steps = below[index], steps+1 {
			if index == parent && len(a.HardwareAddr) == 6 {
				macs = append(macs, a.HardwareAddr)
				break
			}
		}
	}
	slices.SortFunc(macs, slices.Compare)
	return slices.CompactFunc(macs, slices.Equal)
}
