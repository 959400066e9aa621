// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/internal/wholelist"
)

// Place is an interface in a network namespace, with its addresses.
type Place struct {
	NetNS, Interface string
	MAC              net.HardwareAddr
	// Parent is empty for an interface without one, or whose parent is not on the node.
	Parent    Parent
	Addresses []netip.Addr
}

// Search returns the interfaces in the network namespaces of a directory that can be read.
func (f *Finder) Search(dir string) ([]Place, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the network namespaces of pods: %w", err)
	}
	var all []Place
	for _, file := range files {
		places, err := f.placesIn(filepath.Join(dir, file.Name()))
		if err == nil {
			all = append(all, places...)
		}
	}
	return all, nil
}

func (f *Finder) placesIn(path string) (all []Place, err error) {
	err = f.at(path, func(links *netlink.Handle, hostID int) error {
		found, err := wholelist.Of(links.LinkList)
		if err != nil {
			return fmt.Errorf("list the links in %s: %w", path, err)
		}
		for _, link := range found {
			addrs, err := links.AddrList(link, netlink.FAMILY_ALL)
			if err != nil {
				return fmt.Errorf("list the addresses of %s in %s: %w", link.Attrs().Name, path, err)
			}
			p := Place{NetNS: path, Interface: link.Attrs().Name, MAC: link.Attrs().HardwareAddr}
			p.Parent, _ = f.parent(link, hostID)
			for _, a := range addrs {
				if addr, ok := netip.AddrFromSlice(a.IP); ok {
					p.Addresses = append(p.Addresses, addr.Unmap())
				}
			}
			all = append(all, p)
		}
		return nil
	})
	return all, err
}
