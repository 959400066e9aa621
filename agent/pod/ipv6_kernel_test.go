// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package pod

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/utils/sysctl"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// Only the kernel can flag an address as its own: one that a process adds is not taken for it.
func TestOnlyTheKernelsOwnLinkLocalAddressesAreRead(t *testing.T) {
	pod, err := network.Create(fmt.Sprintf("fls%d", os.Getpid()))
	check.OK(t, err)
	t.Cleanup(func() {
		check.OK(t, pod.Delete())
	})
	err = ns.WithNetNSPath(pod.Path(), func(ns.NetNS) error {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "peer"}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		if _, err := sysctl.Sysctl("net/ipv6/conf/eth0/addr_gen_mode", "3"); err != nil {
			return err
		}
		forged, err := netlink.ParseAddr("fe80::1/64")
		if err != nil {
			return err
		}
		forged.Flags = 0x800 // IFA_F_STABLE_PRIVACY: the kernel does not take it from a process
		peer, err := netlink.LinkByName("peer")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetUp(peer), netlink.LinkSetUp(link), netlink.AddrAdd(link, forged))
	})
	check.OK(t, err)
	finder := check.Value(NewFinder())(t)
	defer finder.Close()
	var found []netip.Addr
	for deadline := time.Now().Add(time.Minute); len(found) == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if found, err = finder.LinkLocal(pod.Path(), "eth0"); err != nil {
			t.Fatal(err)
		}
	}
	check.That(t, len(found) == 1 && found[0] != netip.MustParseAddr("fe80::1"), "got %v, want the one address that the kernel made", found)
	check.OK(t, finder.Autoconfigure(pod.Path(), "eth0", false))
	err = ns.WithNetNSPath(pod.Path(), func(ns.NetNS) error {
		value, err := sysctl.Sysctl("net/ipv6/conf/eth0/autoconf")
		check.Equal(t, value, "0", "autoconf is")
		return err
	})
	check.OK(t, err)
	check.That(t, IsGone(check.Err(finder.LinkLocal(pod.Path(), "eth1"))), "a missing interface is not gone")
	check.That(t, IsGone(check.Err(finder.LinkLocal(pod.Path()+"-none", "eth0"))), "a missing namespace is not gone")
}
