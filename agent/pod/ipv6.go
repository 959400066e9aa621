// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/utils/sysctl"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LinkLocal returns the link-local addresses that the kernel made for an interface by RFC 7217.
// Only the kernel can set the flag of such an address. A process in the pod can add any other
// address, also that of a router. The error wraps one of the package's errors if one applies.
func (f *Finder) LinkLocal(path, name string) (all []netip.Addr, err error) {
	err = f.change(path, name, func(links *netlink.Handle, link netlink.Link) error {
		addrs, err := links.AddrList(link, netlink.FAMILY_V6)
		for _, a := range addrs {
			addr, ok := netip.AddrFromSlice(a.IP)
			if ok && addr.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_STABLE_PRIVACY != 0 {
				all = append(all, addr)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the link-local addresses of interface %s in %s: %w", name, path, err)
	}
	return all, nil
}

// Configured returns the MAC of the interface that has an address, in the network namespace with an interface. No
// interface has it if has is false. The error wraps one of the package's errors if one applies.
func (f *Finder) Configured(path, name string, addr netip.Addr) (mac net.HardwareAddr, has bool, err error) {
	err = f.change(path, name, func(links *netlink.Handle, _ netlink.Link) error {
		addrs, err := links.AddrList(nil, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if found, ok := netip.AddrFromSlice(a.IP); !ok || found.Unmap() != addr {
				continue
			}
			link, err := links.LinkByIndex(a.LinkIndex)
			if err != nil {
				return err
			}
			mac, has = link.Attrs().HardwareAddr, true
		}
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("look for %s in %s: %w", addr, path, err)
	}
	return mac, has, nil
}

// KeepARP makes an interface answer ARP only for the addresses that it has itself, and ask by them
// (arp_ignore, arp_announce). It leaves what a process in the pod has set. It returns an error that wraps
// ErrNoInterface if the interface is gone.
func (f *Finder) KeepARP(path, name string) error {
	err := ns.WithNetNSPath(path, func(ns.NetNS) error {
		for _, s := range [...][2]string{{"arp_ignore", "1"}, {"arp_announce", "2"}} {
			setting := "net/ipv4/conf/" + name + "/" + s[0]
			is, err := sysctl.Sysctl(setting)
			if err == nil && is == "0" {
				_, err = sysctl.Sysctl(setting, s[1])
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNoInterface
	}
	if err != nil {
		return fmt.Errorf("keep the ARP of interface %s in %s on it: %w", name, path, err)
	}
	return nil
}

// Autoconfigure switches addresses from router advertisements on or off, temporary ones among them. It
// does nothing in a namespace without IPv6.
func (f *Finder) Autoconfigure(path, name string, on bool) error {
	value := "0"
	if on {
		value = "1"
	}
	err := ns.WithNetNSPath(path, func(ns.NetNS) error {
		_, err := sysctl.Sysctl("net/ipv6/conf/"+name+"/autoconf", value)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("set autoconf of interface %s in %s to %s: %w", name, path, value, err)
	}
	return nil
}
