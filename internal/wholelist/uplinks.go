// SPDX-License-Identifier: Apache-2.0

package wholelist

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
)

// Uplinks returns the ports of a bridge that lead to no pod or virtual machine. links are all those of the node.
func Uplinks(links []netlink.Link, bridge netlink.Link) (ports []netlink.Link, err error) {
	if bridge.Type() != OVSKind {
		return uplinks(links, func(l *netlink.LinkAttrs) bool { return l.MasterIndex == bridge.Attrs().Index }), nil
	}
	name := bridge.Attrs().Name
	bridges, err := OVS()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(bridges, func(b OVSBridge) bool { return b.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("%w: it has no bridge %s", ErrNoOVS, name)
	}
	return bridges[at].Uplinks(links), nil
}

// Uplinks returns the ports of a bridge of Open vSwitch that lead to no pod or virtual machine.
func (b OVSBridge) Uplinks(links []netlink.Link) []netlink.Link {
	return uplinks(links, func(l *netlink.LinkAttrs) bool {
		return slices.ContainsFunc(b.Ports, func(p OVSPort) bool {
			return slices.ContainsFunc(p.Interfaces, func(i OVSInterface) bool { return i.IsLink() && i.Name == l.Name })
		})
	})
}

func uplinks(links []netlink.Link, isPort func(*netlink.LinkAttrs) bool) (ports []netlink.Link) {
	for _, l := range links {
		if isPort(l.Attrs()) && !slices.Contains([]string{"veth", "tuntap", "tun", "dummy", "ifb"}, l.Type()) {
			ports = append(ports, l)
		}
	}
	return ports
}
