// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/utils/sysctl"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ErrGone: the interface or its network namespace does not exist.
var ErrGone = errors.New("the interface is gone")

// PodInterfaces are the interfaces in the network namespaces of pods.
type PodInterfaces struct{}

// LinkLocal returns the link-local addresses of an interface that the kernel made by RFC 7217. Only the
// kernel can flag an address so. A process in the pod can add any other address, also that of a router.
func (PodInterfaces) LinkLocal(path, ifname string) (all []netip.Addr, err error) {
	inside, err := ns.GetNS(path)
	if isGone(err) {
		return nil, fmt.Errorf("%w: open network namespace %s: %w", ErrGone, path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer inside.Close()
	links, err := netlink.NewHandleAt(netns.NsHandle(inside.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket in %s: %w", path, err)
	}
	defer links.Close()
	link, err := links.LinkByName(ifname)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return nil, fmt.Errorf("%w: interface %s in %s", ErrGone, ifname, path)
	}
	if err != nil {
		return nil, fmt.Errorf("look up interface %s in %s: %w", ifname, path, err)
	}
	addrs, err := links.AddrList(link, netlink.FAMILY_V6)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of interface %s in %s: %w", ifname, path, err)
	}
	for _, a := range addrs {
		addr, ok := netip.AddrFromSlice(a.IP)
		if ok && addr.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_STABLE_PRIVACY != 0 {
			all = append(all, addr)
		}
	}
	return all, nil
}

// isGone reports whether an error of ns.GetNS says that there is no namespace at the path. Others, such as too
// many open files, say nothing about it.
func isGone(err error) bool {
	_, missing := errors.AsType[ns.NSPathNotExistErr](err)
	_, other := errors.AsType[ns.NSPathNotNSErr](err)
	return missing || other || errors.Is(err, fs.ErrNotExist)
}

// Autoconfigure switches addresses from router advertisements on or off, temporary ones among them. It
// does nothing in a namespace without IPv6.
func (PodInterfaces) Autoconfigure(path, ifname string, on bool) error {
	value := "0"
	if on {
		value = "1"
	}
	err := ns.WithNetNSPath(path, func(ns.NetNS) error {
		_, err := sysctl.Sysctl("net/ipv6/conf/"+ifname+"/autoconf", value)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("set autoconf of interface %s in %s to %s: %w", ifname, path, value, err)
	}
	return nil
}
