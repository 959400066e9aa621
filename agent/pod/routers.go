// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/utils/sysctl"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/wholelist"
)

// IgnoreRouters makes the interface called name in the namespace at path take nothing from routers: no
// address, route, prefix or MTU of a router advertisement (RFC 4861, section 6.3.4), and no redirect. It
// removes what the interface has taken already. The pod may change the settings later.
func (f *Finder) IgnoreRouters(path, name string) error {
	v4, v6 := "net/ipv4/conf/", "net/ipv6/conf/"+name+"/"
	err := ns.WithNetNSPath(path, func(ns.NetNS) error {
		// A host takes redirects of IPv4 if one of "all" and the interface does. All other interfaces keep
		// their own setting.
		for _, setting := range []string{v6 + "accept_ra", v6 + "accept_redirects", v4 + name + "/accept_redirects", v4 + "all/accept_redirects"} {
			if _, err := sysctl.Sysctl(setting, "0"); err != nil && !errors.Is(err, fs.ErrNotExist) { // without IPv6
				return fmt.Errorf("set %s to 0: %w", setting, err)
			}
		}
		link, err := netlink.LinkByName(name)
		if err != nil || link.Attrs().RawFlags&unix.IFF_UP == 0 {
			return err
		}
		return forgetRouters(link, v6)
	})
	if err != nil {
		return fmt.Errorf("ignore routers on interface %s in %s: %w", name, path, err)
	}
	return nil
}

// forgetRouters removes the addresses, the routes and the MTU that an interface has from router
// advertisements. A VF is up before its plugin asks for its addresses, so it has heard routers.
func forgetRouters(link netlink.Link, v6 string) error {
	addrs, err := wholelist.Of(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_V6) })
	if err != nil {
		return fmt.Errorf("list its addresses: %w", err)
	}
	for _, a := range addrs {
		if a.Flags&unix.IFA_F_PERMANENT != 0 {
			continue
		}
		if err := netlink.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("remove %s: %w", a.IP, err)
		}
	}
	routes, err := wholelist.Of(func() ([]netlink.Route, error) { return netlink.RouteList(link, netlink.FAMILY_V6) })
	if err != nil {
		return fmt.Errorf("list its routes: %w", err)
	}
	for _, r := range routes {
		own := r.Dst != nil && (r.Dst.IP.IsLinkLocalUnicast() || r.Dst.IP.IsMulticast())
		if own || r.Protocol != unix.RTPROT_RA && r.Protocol != unix.RTPROT_KERNEL {
			continue
		}
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove route %s: %w", r, err)
		}
	}
	_, err = sysctl.Sysctl(v6+"mtu", strconv.Itoa(link.Attrs().MTU))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
