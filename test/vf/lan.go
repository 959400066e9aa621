// SPDX-License-Identifier: Apache-2.0

package vf

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/guest"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
)

// carrierLimit is how long a link may take until it has a carrier, in an emulated machine.
const carrierLimit = 30 * time.Second

// LAN is a switch, to which hosts n1 and n2 are plugged by their PFs.
type LAN struct {
	network.LAN
	Hosts []*Host
}

// Host is a machine with a card.
type Host struct {
	*network.Namespace
	// PCI is the address of the PF, whose name is namespaces.Parent.
	PCI string
}

// NewLAN makes a LAN whose hosts have some VFs each. It ends with the test.
func NewLAN(t testing.TB, vfs int) LAN {
	t.Helper()
	l := LAN{LAN: network.NewLAN(t)}
	for n := 1; n <= guest.PFs; n++ {
		name := namespaces.NodeName(n)
		borrow(t, l.Switch, byMAC(t, guest.CableMAC(n)), network.Port(name))
		check.OK(t, l.Switch.Replug(network.Port(name), network.Bridge))
		check.OK(t, l.Switch.SetUp(network.Port(name), true))
		pf := byMAC(t, guest.PFMAC(n))
		h := &Host{Namespace: network.New(t, name), PCI: check.Value(pciOf(pf.Attrs().Name))(t)}
		check.OK(t, h.MountSysfs())
		borrow(t, h.Namespace, pf, namespaces.Parent)
		check.OK(t, h.SetUp(namespaces.Parent, true))
		l.Hosts = append(l.Hosts, h)
	}
	for _, h := range l.Hosts { // a card that has no carrier yet makes VFs without one
		AwaitCarrier(t, h.Namespace, namespaces.Parent)
	}
	t.Cleanup(func() { check.OK(t, l.setVFs(0)) })
	check.OK(t, l.setVFs(vfs))
	return l
}

// setVFs makes VFs of all cards at the same time: a driver takes seconds.
func (l LAN) setVFs(number int) error {
	var cards errgroup.Group
	for _, h := range l.Hosts {
		cards.Go(func() error { return h.SetVFs(number) })
	}
	return cards.Wait()
}

// byMAC finds an interface of the guest. A driver may make it later than its module is loaded.
func byMAC(t testing.TB, mac net.HardwareAddr) (found netlink.Link) {
	t.Helper()
	check.Becomes(t, carrierLimit, "an interface with the MAC "+mac.String()+" (does the guest run with -sriov?)", func() bool {
		links := check.Value(netlink.LinkList())(t)
		i := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().HardwareAddr.String() == mac.String() })
		if i >= 0 {
			found = links[i]
		}
		return i >= 0
	})
	return found
}

// borrow moves an interface of the guest to a namespace until the test ends.
func borrow(t testing.TB, ns *network.Namespace, link netlink.Link, name string) {
	t.Helper()
	was := link.Attrs().Name
	guests := check.Value(netns.Get())(t)
	check.OK(t, move(link, ns, name))
	t.Cleanup(func() {
		defer guests.Close()
		l, err := ns.Links().LinkByName(name)
		if err == nil {
			err = errors.Join(ns.Links().LinkSetDown(l), ns.Links().LinkSetNoMaster(l), ns.Links().LinkSetName(l, was), ns.Links().LinkSetNsFd(l, int(guests)))
		}
		check.OK(t, err)
	})
}

// move moves an interface of the guest to a namespace.
func move(link netlink.Link, ns *network.Namespace, name string) (err error) {
	was := link.Attrs().Name
	defer must.CatchIn(&err, "move %s to %s as %s", was, ns.Name, name)
	inside := must.Value(os.Open(ns.Path()))
	defer inside.Close()
	must.OK(errors.Join(netlink.LinkSetDown(link), netlink.LinkSetNsFd(link, int(inside.Fd()))))
	// Its index may be another one there.
	return ns.Links().LinkSetName(must.Value(ns.Links().LinkByName(was)), name)
}

// AwaitCarrier returns when an interface that is up has its carrier.
func AwaitCarrier(t testing.TB, ns *network.Namespace, name string) {
	t.Helper()
	check.Eventually(t, carrierLimit, "a carrier of "+name, func() error {
		link, err := ns.Links().LinkByName(name)
		if err == nil && link.Attrs().OperState != netlink.OperUp {
			err = fmt.Errorf("%s in %s is %s", name, ns.Name, link.Attrs().OperState)
		}
		return err
	})
}

// pciOf returns the PCI address of an interface of the guest.
func pciOf(name string) (string, error) {
	target, err := os.Readlink(filepath.Join("/sys/class/net", name, "device"))
	return filepath.Base(target), err
}
